#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

struct CUstream_st;  // cudaStream_t, without the CUDA headers

namespace lockstep::kernels {

// Causal attention in bf16 by cuDNN. Queries, keys and values lie side by side in one
// matrix of (batch * length, 3 * heads * width), and so do their gradients: nothing is
// moved before or after.
//
// Threads: one at a time. Lifetime: launches may be under way when it ends; the
//          workspace outlives them.
class Attention {
 public:
  struct Sizes {
    std::int64_t batch = 0, length = 0, heads = 0, width = 0;  // of one head

    bool operator==(const Sizes&) const = default;
  };

  // For the current device. Deterministic: sums have one order, so that the bits are
  // the same every time. Throws Fault::hardware if cuDNN has no kernel for it.
  explicit Attention(const Sizes& sizes, bool deterministic = true);
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  struct Tensors {
    const void* qkv = nullptr;
    void* out = nullptr;    // (batch * length, heads * width)
    float* sums = nullptr;  // of the exponentials: (batch, heads, length)
    const void* by_out = nullptr;
    void* by_qkv = nullptr;
    void* workspace = nullptr;  // of workspace_bytes()
  };
  // These launch on `stream` and do not wait. The first fills out and sums, the second
  // reads them and fills by_qkv.
  void forward(const Tensors& tensors, CUstream_st* stream);
  void backward(const Tensors& tensors, CUstream_st* stream);

  std::size_t workspace_bytes() const noexcept;

  // Returns whether this build has it and cuDNN is there.
  static bool is_available() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::kernels
