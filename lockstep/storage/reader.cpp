#include "lockstep/storage/reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/detail/blocks.h"
#include "lockstep/storage/detail/input_file.h"

namespace lockstep::storage {
namespace {

// The state of a block. The thread that turns `unseen` into `busy` reads and verifies
// it; others wait.
enum State : std::uint8_t { unseen, busy, good, damaged };

struct OpenFile {
  explicit OpenFile(const Path& path, std::size_t blocks)
      : input(path), states(blocks) {}

  InputFile input;
  std::vector<std::atomic<std::uint8_t>> states;
};

std::vector<std::byte> scratch(std::int64_t bytes) {
  return std::vector<std::byte>(static_cast<std::size_t>(bytes));
}

}  // namespace

struct Reader::Impl {
  Path path;
  Manifest manifest;
  std::deque<OpenFile> files;
  std::atomic<std::int64_t> bytes_read = 0;

  void fetch(std::size_t file, std::int64_t offset, std::span<std::byte> out);
  void fetch_from_block(const BlockIndex& index, std::int64_t offset,
                        std::span<std::byte> out);
  bool claim(const BlockIndex& index);
  void read_block(const BlockIndex& index, std::span<std::byte> memory);
  // Reads elements as they are stored: `range` has the order of the tensor.
  void read_stored(const TensorRecord& tensor, const ElementRange& range,
                   std::span<std::byte> out);
  void read_reordered(const TensorRecord& tensor, const ElementRange& range,
                      std::span<std::byte> out);
  void input(std::size_t file, std::int64_t offset, std::span<std::byte> out) {
    files[file].input.read(offset, out);
    bytes_read += static_cast<std::int64_t>(out.size());
  }
};

// Returns true if the caller has to verify the block, false if it is verified.
bool Reader::Impl::claim(const BlockIndex& index) {
  auto& state = files[index.file].states[index.block];
  while (true) {
    std::uint8_t seen = unseen;
    if (state.compare_exchange_strong(seen, busy)) return true;
    if (seen == good) return false;
    if (seen == damaged) {
      throw_damaged(manifest, index, path / manifest.files[index.file].name);
    }
    state.wait(busy);
  }
}

// `memory` has the size of the block, which this thread has claimed.
void Reader::Impl::read_block(const BlockIndex& index, std::span<std::byte> memory) {
  auto& state = files[index.file].states[index.block];
  const auto end = [&](State result) {
    state.store(result);
    state.notify_all();
  };
  try {
    input(index.file, block_range(manifest, index).begin, memory);
  } catch (...) {
    end(unseen);  // an error of the disk, which another try may not meet
    throw;
  }
  const bool same = digest_of(memory) == manifest.files[index.file].blocks[index.block];
  end(same ? good : damaged);
  if (!same) throw_damaged(manifest, index, path / manifest.files[index.file].name);
}

void Reader::Impl::fetch_from_block(const BlockIndex& index, std::int64_t offset,
                                    std::span<std::byte> out) {
  if (!claim(index)) return input(index.file, offset, out);
  const auto range = block_range(manifest, index);
  if (static_cast<std::int64_t>(out.size()) == range.size) {
    return read_block(index, out);
  }
  auto whole = scratch(range.size);
  read_block(index, whole);
  std::memcpy(out.data(), whole.data() + (offset - range.begin), out.size());
}

void Reader::Impl::fetch(std::size_t file, std::int64_t offset,
                         std::span<std::byte> out) {
  while (!out.empty()) {
    const auto block = offset / manifest.block_bytes;
    const auto left = (block + 1) * manifest.block_bytes - offset;
    const auto part = out.first(std::min(out.size(), static_cast<std::size_t>(left)));
    fetch_from_block({file, static_cast<std::size_t>(block)}, offset, part);
    offset += static_cast<std::int64_t>(part.size());
    out = out.subspan(part.size());
  }
}

void Reader::Impl::read_stored(const TensorRecord& tensor, const ElementRange& range,
                               std::span<std::byte> out) {
  const auto bytes_of = [&](std::int64_t elements) {
    const auto bytes = num_bytes(tensor.dtype, elements);
    LOCKSTEP_CHECK(bytes, tensor.dtype, " ends inside a byte");
    return *bytes;
  };
  for (const auto& piece : tensor.pieces) {
    const auto from = std::max(range.begin, piece.begin);
    const auto to = std::min(range.begin + range.count, piece.begin + piece.count);
    if (from >= to) continue;
    fetch(piece.file, piece.offset + bytes_of(from - piece.begin),
          out.subspan(static_cast<std::size_t>(bytes_of(from - range.begin)),
                      static_cast<std::size_t>(bytes_of(to - from))));
  }
}

// Elements that are neighbours in one order may be anywhere in the other: the stretch
// that holds all of them is read.
void Reader::Impl::read_reordered(const TensorRecord& tensor, const ElementRange& range,
                                  std::span<std::byte> out) {
  const auto bytes = num_bytes(tensor.dtype, 1);
  LOCKSTEP_CHECK(bytes, tensor.dtype, " has elements of less than a byte");
  const auto width = static_cast<std::size_t>(*bytes);
  std::int64_t low = tensor.num_elements(), high = 0;
  Walk look(tensor.shape, {.from = range.order, .to = tensor.order}, range.begin);
  for (std::int64_t i = 0; i < range.count; ++i, look.next()) {
    low = std::min(low, look.position());
    high = std::max(high, look.position() + 1);
  }
  auto stretch = scratch((high - low) * *bytes);
  read_stored(tensor, {low, high - low, tensor.order}, stretch);
  Walk walk(tensor.shape, {.from = range.order, .to = tensor.order}, range.begin);
  auto* to = out.data();
  for (std::int64_t i = 0; i < range.count; ++i, walk.next(), to += width) {
    std::memcpy(
        to, stretch.data() + static_cast<std::size_t>(walk.position() - low) * width,
        width);
  }
}

Reader::Reader(const Path& checkpoint) : impl_(std::make_unique<Impl>()) {
  impl_->path = checkpoint;
  impl_->manifest = verify(checkpoint, Depth::quick);
  for (const auto& file : impl_->manifest.files) {
    impl_->files.emplace_back(checkpoint / file.name, file.blocks.size());
  }
}

Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;

const Path& Reader::path() const noexcept {
  return impl_->path;
}

const Manifest& Reader::manifest() const noexcept {
  return impl_->manifest;
}

const TensorRecord& Reader::tensor(std::string_view name) const {
  if (const auto* found = impl_->manifest.find(name)) return *found;
  throw Error(Fault::io, impl_->path.string(), ": there is no tensor '", name,
              "' in it; `lockstep checkpoint inspect` lists them");
}

void Reader::read(std::string_view name, const ElementRange& range,
                  std::span<std::byte> out) const {
  const auto& tensor = this->tensor(name);
  const auto order = normal(range.order);
  const auto total = tensor.num_elements();
  LOCKSTEP_CHECK(is_order(order, tensor.shape.size()), name, " ", to_text(order));
  LOCKSTEP_CHECK(range.begin >= 0 && range.count >= 0 && range.count <= total &&
                     range.begin <= total - range.count,
                 name, " ", range.begin, " ", range.count, " of ", total);
  LOCKSTEP_CHECK(
      num_bytes(tensor.dtype, range.count) == static_cast<std::int64_t>(out.size()),
      name, " ", out.size(), " bytes for ", range.count, " ", tensor.dtype);
  if (range.count == 0) return;
  try {
    if (order == tensor.order) {
      impl_->read_stored(tensor, range, out);
    } else {
      impl_->read_reordered(tensor, {range.begin, range.count, order}, out);
    }
  } catch (const Error& error) {
    throw Error(error.fault(), "tensor '", name, "': ", error.what());
  }
}

void Reader::read(std::string_view name, std::span<std::byte> out) const {
  read(name, {.begin = 0, .count = tensor(name).num_elements(), .order = {}}, out);
}

std::int64_t Reader::bytes_read() const noexcept {
  return impl_->bytes_read;
}

}  // namespace lockstep::storage
