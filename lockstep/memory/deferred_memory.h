#pragma once

#include <cstdint>
#include <memory>

#include <c10/core/Allocator.h>

namespace lockstep::memory {

// While it lives, counts what tensors without memory (models::DeferredMemory) would
// take. One at a time.
class DeferredMemoryCount {
 public:
  DeferredMemoryCount();
  ~DeferredMemoryCount();
  DeferredMemoryCount(const DeferredMemoryCount&) = delete;
  DeferredMemoryCount& operator=(const DeferredMemoryCount&) = delete;

  // These return the bytes of tensors made under it: now, and the peak.
  std::int64_t used_bytes() const noexcept;
  std::int64_t peak_bytes() const noexcept;
  void restart_peak() noexcept;  // from what is used now

  class Allocator;

 private:
  std::shared_ptr<Allocator> allocator_;
  c10::Allocator* before_;
};

}  // namespace lockstep::memory
