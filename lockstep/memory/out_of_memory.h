#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

#include "lockstep/models/draws.h"
#include "lockstep/models/model.h"
#include "lockstep/models/out_of_memory.h"

namespace lockstep::memory {

using models::is_out_of_memory;

// While it lives, tensors of the host take at most so many bytes in this process: one
// that does not fit is refused like on a GPU. One at a time.
class HostMemoryLimit {
 public:
  explicit HostMemoryLimit(std::int64_t bytes);
  ~HostMemoryLimit();
  HostMemoryLimit(const HostMemoryLimit&) = delete;
  HostMemoryLimit& operator=(const HostMemoryLimit&) = delete;

  // These return the bytes of tensors made under it: now, and the peak.
  std::int64_t used_bytes() const noexcept;
  std::int64_t peak_bytes() const noexcept;
  void restart_peak() noexcept;  // from what is used now
  std::int64_t limit_bytes() const noexcept;

  class Allocator;

 private:
  std::shared_ptr<Allocator> allocator_;
  c10::Allocator* before_;
};

// A copy of the state that a step changes, from when the step began: the buffers of the
// model and the generators that its dropouts draw from.
class StepStart {
 public:
  explicit StepStart(models::Model& model, const torch::Device& device);

  void take();
  void restore();

 private:
  std::vector<torch::Tensor> buffers_, copies_;
  models::Draws draws_;
};

// Gives memory that is kept for later tensors back to the device.
void empty_cache(const torch::Device& device);

}  // namespace lockstep::memory
