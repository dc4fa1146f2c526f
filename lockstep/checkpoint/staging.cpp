#include "lockstep/checkpoint/detail/staging.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include <sys/mman.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"
#include "lockstep/storage/streaming_copy.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::int64_t kHugePage = 2 << 20;

bool waits(const Piece& piece) {
  return !piece.changes_in_forward;
}
bool is_on_host(const Piece& piece) {
  return piece.data.device().is_cpu();
}

// A file gets all elements of a whole tensor in row-major order.
storage::PieceToWrite described(const Piece& piece) {
  return {.name = piece.name,
          .dtype = dtype_name(piece.data.scalar_type()),
          .shape = piece.shape,
          .order = piece.is_whole() ? storage::Order{} : piece.order,
          .begin = piece.begin,
          .count = piece.data.numel()};
}

torch::Tensor in_rows(const Piece& piece) {
  if (!piece.is_whole() || piece.order.empty()) return piece.data;
  return piece.data.as_strided(piece.shape,
                               storage::strides_of(piece.shape, piece.order));
}

}  // namespace

template <typename Visit>
void Staging::for_each_piece(const Visit& visit) const {
  for (std::size_t i = 0; i < order_.size(); ++i) {
    visit(pieces_[order_[i]], file_->offset_of(i));
  }
}

Staging::Staging(int rank, const torch::Device& device) : rank_(rank), device_(device) {
  if (device_.is_cpu()) return;
  stream_.emplace(
      c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_));
}

void Staging::begin(Pieces pieces) {
  pieces_ = std::move(pieces);
  lay_out();
  digests_.clear();
  for_each_piece([this](const Piece& piece, std::int64_t offset) {
    if (!waits(piece)) copy(piece, offset);
  });
  if (stream_) send();
}

void Staging::copy_host() {
  if (stream_) {
    for_each_piece([this](const Piece& piece, std::int64_t offset) {
      if (waits(piece) && is_on_host(piece)) copy(piece, offset);
    });
  } else {
    copy_and_digest();
  }
}

void Staging::wait_for_device() {
  if (stream_) sent_->synchronize();
}

void Staging::fence_device() {
  if (!stream_ || !sent_) return;
  sent_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

bool Staging::waits_on_host() const {
  return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& piece) {
    return waits(piece) && is_on_host(piece);
  });
}

storage::WrittenFile Staging::write(storage::FileSystem& files,
                                    const std::filesystem::path& directory,
                                    std::function<void()> may_go_on) const {
  const auto size = static_cast<std::size_t>(file_->image_bytes());
  return file_->write(
      files, directory,
      {.bytes = {image_, size},
       .options = {.digests = digests_, .may_go_on = std::move(may_go_on)}});
}

// The places are those of the save before, unless there are other tensors now.
void Staging::lay_out() {
  std::vector<storage::PieceToWrite> wanted;
  wanted.reserve(pieces_.size());
  for (const auto& piece : pieces_) wanted.push_back(described(piece));
  if (file_ && wanted == laid_out_) return;
  std::map<std::pair<std::string, std::int64_t>, std::size_t> by_name;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool fresh =
        by_name.emplace(std::pair(wanted[i].name, wanted[i].begin), i).second;
    LOCKSTEP_CHECK(fresh, wanted[i].name, " from ", wanted[i].begin, " on, twice");
  }
  file_.reset();  // it stands for memory that is there
  storage::RankFile file(str("rank_", rank_, ".safetensors"), wanted);
  order_.clear();
  for (const auto& piece : file.pieces()) {
    order_.push_back(by_name.at({piece.name, piece.begin}));
  }
  take_memory(file.image_bytes());
  std::memset(image_ + file.num_bytes(), 0,
              static_cast<std::size_t>(file.image_bytes() - file.num_bytes()));
  std::memcpy(image_, file.header().data(), file.header().size());
  laid_out_ = std::move(wanted);
  file_.emplace(std::move(file));
}

void Staging::take_memory(std::int64_t bytes) {
  const auto align = bytes < kHugePage ? storage::kDirectAlignment : kHugePage;
  if (!memory_.defined() || memory_.numel() < bytes + align) {
    memory_.reset();
    memory_ =
        torch::empty({bytes + align},
                     torch::dtype(torch::kUInt8).pinned_memory(stream_.has_value()));
  }
  auto* begin = memory_.mutable_data_ptr();
  auto room = static_cast<std::size_t>(memory_.numel());
  image_ = static_cast<std::byte*>(std::align(
      static_cast<std::size_t>(align), static_cast<std::size_t>(bytes), begin, room));
  if (align == kHugePage && !stream_) prefer_huge_pages(bytes);
}

// Copies and direct writes take much less of a core with huge pages. Pages that are
// there already would stay small: they are dropped, since nothing is in them yet.
void Staging::prefer_huge_pages(std::int64_t bytes) const {
  const auto whole = static_cast<std::size_t>(bytes / kHugePage * kHugePage);
  ::madvise(image_, whole, MADV_DONTNEED);
  ::madvise(image_, whole, MADV_HUGEPAGE);
}

void Staging::copy(const Piece& piece, std::int64_t offset) const {
  if (piece.data.numel() == 0) return;
  const torch::NoGradGuard no_grad;
  const auto from = in_rows(piece);
  const auto begin = image_ - static_cast<std::byte*>(memory_.mutable_data_ptr());
  memory_.narrow(0, begin + offset, static_cast<std::int64_t>(from.nbytes()))
      .view(from.scalar_type())
      .view(from.sizes())
      .copy_(from, /*non_blocking=*/true);
}

// Copies in the order of the file, so that its digests come out of it.
void Staging::copy_and_digest() {
  storage::BlockDigests digests(storage::kBlockBytes);
  digests.add(std::as_bytes(std::span(file_->header())));
  for_each_piece([&](const Piece& piece, std::int64_t offset) {
    const auto from = in_rows(piece);
    if (waits(piece) && from.is_contiguous()) {
      const auto* data = static_cast<const std::byte*>(from.const_data_ptr());
      storage::copy_and_digest(image_ + offset, {data, from.nbytes()}, digests);
      return;
    }
    if (waits(piece)) copy(piece, offset);
    digests.add({image_ + offset, from.nbytes()});
  });
  digests_ = digests.finish();
}

void Staging::send() {
  c10::Event now(device_.type());
  now.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  now.block(*stream_);
  const c10::StreamGuard on_stream(*stream_);
  for_each_piece([this](const Piece& piece, std::int64_t offset) {
    if (waits(piece) && !is_on_host(piece)) copy(piece, offset);
  });
  sent_.emplace(device_.type());
  sent_->record(*stream_);
}

}  // namespace lockstep::checkpoint
