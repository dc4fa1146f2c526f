#include <algorithm>
#include <atomic>
#include <future>

#include "lockstep/base/error.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/storage/detail/manifest_json.h"
#include "lockstep/storage/publish.h"
#include "lockstep/storage/safetensors.h"

namespace lockstep::storage {
namespace {

TensorRecord record_of(const PieceToWrite& piece) {
  return {.name = piece.name,
          .dtype = piece.dtype,
          .shape = piece.shape,
          .order = normal(piece.order),
          .pieces = {{.begin = piece.begin, .count = piece.count}}};
}

SafetensorsEntry entry_of(const PieceToWrite& piece) {
  const auto record = record_of(piece);
  const auto name = entry_name(record, record.pieces.front());
  const bool whole = name == piece.name;
  return {.name = name,
          .dtype = piece.dtype,
          .shape = whole ? piece.shape : Shape{piece.count}};
}

void sort_for_file(std::vector<PieceToWrite>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    const auto bits_a = bits_of(a.dtype).value_or(0);
    const auto bits_b = bits_of(b.dtype).value_or(0);
    if (bits_a != bits_b) return bits_a > bits_b;
    return std::tie(a.name, a.begin) < std::tie(b.name, b.begin);
  });
}

// Pieces of one tensor stand together, since they are sorted by name.
std::vector<TensorRecord> records_of(const std::vector<PieceToWrite>& pieces,
                                     const std::vector<std::int64_t>& offsets) {
  std::vector<TensorRecord> records;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    auto record = record_of(pieces[i]);
    record.pieces.front().offset = offsets[i];
    if (!records.empty() && records.back().name == record.name) {
      records.back().pieces.push_back(record.pieces.front());
    } else {
      records.push_back(std::move(record));
    }
  }
  return records;
}

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

bool is_power_of_two(std::int64_t value) {
  return value > 0 && (value & (value - 1)) == 0;
}

// A part is large enough that the disk is busy. One is written at a time: several
// threads that make a file longer wait for each other, and in Linux they spin while
// they do.
constexpr std::size_t kPartBytes = 8 << 20;

void write_parts(OutputFile& file, Bytes bytes,
                 const std::function<void()>& may_go_on) {
  for (std::size_t at = 0; at < bytes.size(); at += kPartBytes) {
    if (may_go_on) may_go_on();
    file.write(static_cast<std::int64_t>(at),
               bytes.subspan(at, std::min(kPartBytes, bytes.size() - at)));
  }
}

std::vector<Digest> digests_of(Bytes bytes, std::int64_t block_bytes,
                               const std::atomic<bool>& enough) {
  BlockDigests digests(block_bytes);
  for (std::size_t at = 0; at < bytes.size() && !enough; at += kPartBytes) {
    digests.add(bytes.subspan(at, std::min(kPartBytes, bytes.size() - at)));
  }
  return digests.finish();
}

}  // namespace

std::int64_t PieceToWrite::num_bytes() const {
  return storage::num_bytes(dtype, count).value_or(0);
}

std::string WrittenFile::to_json() const {
  Json json = {{"file", json_of(file)}, {"tensors", Json::array()}};
  for (const auto& tensor : tensors) json["tensors"].push_back(json_of(tensor, {file}));
  return json.dump();
}

WrittenFile WrittenFile::from_json(std::string_view text) {
  try {
    const auto json = Json::parse(text);
    WrittenFile written{.file = file_from(json.at("file")), .tensors = {}};
    const auto indices = indices_of({written.file});
    for (const auto& tensor : json.at("tensors")) {
      written.tensors.push_back(tensor_from(tensor, indices));
    }
    return written;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Fault::io, "a rank's record of its file: ", json_problem(error));
  }
}

RankFile::RankFile(std::string name, std::vector<PieceToWrite> pieces)
    : name_(std::move(name)), pieces_(std::move(pieces)) {
  sort_for_file(pieces_);
  std::vector<SafetensorsEntry> entries;
  entries.reserve(pieces_.size());
  for (const auto& piece : pieces_) entries.push_back(entry_of(piece));
  place(entries);
  header_ = header_text(entries);
  num_bytes_ = static_cast<std::int64_t>(header_.size());
  for (const auto& entry : entries) {
    offsets_.push_back(num_bytes_);
    num_bytes_ += entry.end - entry.begin;
  }
}

std::int64_t RankFile::image_bytes() const noexcept {
  return rounded_up(num_bytes_, kDirectAlignment);
}

WrittenFile RankFile::write(FileSystem& files, const Path& directory,
                            Image of_file) const {
  const auto image = of_file.bytes;
  auto& options = of_file.options;
  LOCKSTEP_CHECK(is_power_of_two(options.block_bytes), options.block_bytes);
  LOCKSTEP_CHECK(static_cast<std::int64_t>(image.size()) == image_bytes(), image.size(),
                 " bytes of ", image_bytes());
  LOCKSTEP_CHECK(reinterpret_cast<std::uintptr_t>(image.data()) % kDirectAlignment == 0,
                 "the image is not aligned");
  WrittenFile written{.file = {.name = name_, .size = num_bytes_, .blocks = {}},
                      .tensors = records_of(pieces_, offsets_)};
  const auto file = files.create(directory / name_, options.caching);
  file->reserve(num_bytes_);
  const auto content = image.first(static_cast<std::size_t>(num_bytes_));
  const bool direct = options.caching == Caching::direct;
  std::atomic<bool> enough = false;
  std::future<std::vector<Digest>> hashing;  // while the disk works
  if (options.digests.empty()) {
    hashing = std::async(std::launch::async, [&] {
      return digests_of(content, options.block_bytes, enough);
    });
  }
  try {
    write_parts(*file, direct ? image : content, options.may_go_on);
  } catch (...) {
    enough = true;  // the hash of unwritten bytes is not needed
    throw;
  }
  if (direct && num_bytes_ % kDirectAlignment != 0) file->truncate(num_bytes_);
  file->sync();
  file->close();
  written.file.blocks = hashing.valid() ? hashing.get() : std::move(options.digests);
  return written;
}

}  // namespace lockstep::storage
