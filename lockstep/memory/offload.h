#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <torch/torch.h>

namespace lockstep::memory {

// Keeps the activations that the backward pass needs in the host's memory instead of
// the GPU's. A tensor goes there as soon as an operator has saved it, and comes back a
// little before its operator's turn, both beside the computation.
//
// Threads:  one forward pass at a time; the backward pass may have its own.
// Lifetime: the first one is made before the first backward pass of the process; each
//           ends after the backward passes of what ran in its scopes.
class Offload {
 public:
  struct Options {
    torch::Device device = torch::kCPU;  // of a CPU: copies, for tests
    // Tensors that stay where they are: the parameters, or the buffers they live in.
    std::vector<torch::Tensor> resident;
    std::int64_t smallest_bytes = 1 << 20;  // less is not worth the way
  };
  explicit Offload(const Options& options);
  ~Offload();
  Offload(const Offload&) = delete;
  Offload& operator=(const Offload&) = delete;

  // Offloads what operators of this thread save in its scope. With nullptr: nothing.
  class Scope {
   public:
    explicit Scope(Offload* offload);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    void* before_;
  };

  std::int64_t moved_bytes() const noexcept;  // to the host, since it was made

  class Store;

 private:
  std::shared_ptr<Store> store_;  // saved tensors may be freed after it
};

}  // namespace lockstep::memory
