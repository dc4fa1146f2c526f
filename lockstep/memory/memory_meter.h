#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

#include "lockstep/memory/deferred_memory.h"
#include "lockstep/memory/out_of_memory.h"

namespace lockstep::memory {

// Measures the memory of a device's tensors, and its peak: on a GPU by its allocator,
// on the host and for those without memory (models::DeferredMemory) by a count of our
// own, which lasts as long as this. One at a time.
class MemoryMeter {
 public:
  // `host` is a count of the host that exists already; it may be null.
  explicit MemoryMeter(const torch::Device& device, HostMemoryLimit* host = nullptr);
  MemoryMeter(const MemoryMeter&) = delete;
  MemoryMeter& operator=(const MemoryMeter&) = delete;

  // These return the bytes of tensors. On a GPU they are what is reserved: pieces that
  // nothing fits into are lost, too.
  std::int64_t used_bytes() const;
  std::int64_t peak_bytes() const;
  void restart_peak();  // from what is used now

  // Returns all that this process could have; unlimited where nothing limits it.
  std::int64_t available_bytes() const;

 private:
  const torch::Device device_;
  std::optional<DeferredMemoryCount> deferred_;
  std::optional<HostMemoryLimit> own_;
  HostMemoryLimit* host_ = nullptr;
};

}  // namespace lockstep::memory
