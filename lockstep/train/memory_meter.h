#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

#include "lockstep/train/deferred_memory.h"
#include "lockstep/train/out_of_memory.h"

namespace lockstep::train {

// What the tensors of a device take, and took at most: of a GPU by its allocator, of
// the host and of those without memory (models::DeferredMemory) by a count of our own,
// which lasts as long as this. One at a time.
class MemoryMeter {
 public:
  // `host` counts already, for the host; may be null.
  explicit MemoryMeter(const torch::Device& device, HostMemoryLimit* host = nullptr);
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  // By tensors. Of a GPU what is reserved for them: pieces that nothing fits into are
  // lost, too.
  std::int64_t used_bytes() const;
  std::int64_t peak_bytes() const;
  void restart_peak();  // from what is used now

  // All that this process could have; without end where nothing limits it.
  std::int64_t available_bytes() const;

 private:
  const torch::Device device_;
  std::optional<DeferredMemoryCount> deferred_;
  std::optional<HostMemoryLimit> own_;
  HostMemoryLimit* host_ = nullptr;
};

}  // namespace lockstep::train
