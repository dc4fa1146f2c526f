#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <torch/torch.h>

#include "lockstep/checkpoint/pieces.h"
#include "lockstep/storage/publish.h"

namespace lockstep::checkpoint {

// Copies of the pieces in memory that is laid out as this rank's file is, and kept for
// the next save.
//
// Threads: begin() and fence_device() by the one that trains; then copy_host(),
//          wait_for_device() and write() by another, in this order.
class Staging {
 public:
  Staging(int rank, const torch::Device& device);

  // Copies now what can not wait; on a GPU the rest starts on its way.
  void begin(Pieces pieces);

  // Copies the pieces in host memory. The pieces may change when it is done, and the
  // stream has passed fence_device().
  void copy_host();
  // Waits until all pieces are on the host.
  void wait_for_device();
  storage::WrittenFile write(storage::FileSystem& files,
                             const std::filesystem::path& directory,
                             std::function<void()> may_go_on) const;

  // To be called before the pieces change.
  void fence_device();
  // Returns whether the trainer has to wait until copy_host() is done, too.
  bool waits_on_host() const;

  std::int64_t num_bytes() const { return file_ ? file_->num_bytes() : 0; }
  std::int64_t held_bytes() const { return memory_.defined() ? memory_.numel() : 0; }

 private:
  void lay_out();
  void take_memory(std::int64_t bytes);
  void prefer_huge_pages(std::int64_t bytes) const;
  void copy(const Piece& piece, std::int64_t offset) const;
  void copy_and_digest();
  void send();
  template <typename Visit>
  void for_each_piece(const Visit& visit) const;

  const int rank_;
  const torch::Device device_;
  std::optional<c10::Stream> stream_;  // none of a CPU
  std::optional<c10::Event> sent_;
  Pieces pieces_;
  std::vector<storage::PieceToWrite> laid_out_;  // as in pieces_
  std::optional<storage::RankFile> file_;
  std::vector<std::size_t> order_;  // of pieces_ in the file
  torch::Tensor memory_;
  std::byte* image_ = nullptr;  // in memory_
  std::vector<storage::Digest> digests_;
};

}  // namespace lockstep::checkpoint
