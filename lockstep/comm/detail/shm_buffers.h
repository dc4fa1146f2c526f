#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/detail/shm_board.h"

namespace lockstep::comm::detail {

// The tensors that all ranks got from the same call of empty_buffer(): this process
// sees those of all.
class SharedBuffer {
 public:
  SharedBuffer(std::int64_t id, std::vector<SharedMemory> of_ranks)
      : id_(id), of_ranks_(std::move(of_ranks)) {}

  std::int64_t id() const noexcept { return id_; }
  char* data(int rank) const {
    return of_ranks_[static_cast<std::size_t>(rank)].data();
  }

 private:
  std::int64_t id_;  // the same on every rank
  std::vector<SharedMemory> of_ranks_;
};

struct BufferPlace {
  std::shared_ptr<SharedBuffer> buffer;
  std::size_t offset_bytes = 0;
};

// The shared buffers that this rank still has tensors of.
class Buffers {
 public:
  // Makes memory of every rank, `num_bytes` each, that every rank has mapped; returns
  // null on all ranks if one of them can not have it. `over` is this rank's
  // communicator. Collective.
  std::shared_ptr<SharedBuffer> make(Communicator& over, const Board& board,
                                     std::size_t num_bytes);

  // Returns the place of `t`, if it is in one of them.
  std::optional<BufferPlace> find(const torch::Tensor& t, int rank) const;

 private:
  struct CachedBuffer {
    std::size_t num_bytes;
    std::weak_ptr<SharedBuffer> buffer;
  };
  std::map<const char*, CachedBuffer> by_begin_;  // of this rank's memory
  std::int64_t next_id_ = 0;
};

}  // namespace lockstep::comm::detail
