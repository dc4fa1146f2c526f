#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <torch/torch.h>

#include "lockstep/kernels/attention.h"

namespace lockstep::models {

// Causal attention without autograd, by operators that keep no scores. Queries, keys
// and values stay side by side in one matrix, as a layer makes them: nothing is
// transposed in memory.
class CausalAttention {
 public:
  enum class Kind {
    cpu,        // any device of the host
    packed,     // kernels::Attention: bf16 on a GPU, the same bits every time
    cudnn,      // LibTorch's, bf16 and fp16 on a GPU
    flash,      // likewise
    efficient,  // any type on a GPU
  };
  using Sizes = kernels::Attention::Sizes;

  // For tensors on the current device. Throws Fault::hardware where a GPU or cuDNN has
  // no kernel of this kind for the size.
  CausalAttention(const Sizes& sizes, Kind kind);

  // Returns kinds for such tensors, the one that repeats its bits first.
  static std::vector<Kind> kinds_for(const torch::Tensor& like);

  struct Kept {
    torch::Tensor out, statistics, seed, offset, starts_q, starts_k;
    std::int64_t longest_q = 0, longest_k = 0;
  };
  // `qkv` is (batch * length, 3 * heads * width). kept.out is a matrix of (batch *
  // length, heads * width); what is in it beforehand may be used again.
  void forward(const torch::Tensor& qkv, Kept& kept) const;

  // Returns the gradients by queries, keys and values, which are to be put side by
  // side: three matrices of (batch * length, heads * width); or the whole, in `by_qkv`.
  struct Backward {
    const Kept& kept;
    torch::Tensor gradient;  // by kept.out
    torch::Tensor by_qkv;
  };
  struct Gradients {
    std::array<torch::Tensor, 3> parts;
    int num_parts = 3;
  };
  Gradients backward(const torch::Tensor& qkv, const Backward& step) const;

  Kind kind() const noexcept { return kind_; }

 private:
  struct Parts {
    torch::Tensor q, k, v;  // (batch, heads, length, width)
  };
  Parts split(const torch::Tensor& qkv) const;
  torch::Tensor matrix(const torch::Tensor& heads) const;
  torch::Tensor by_heads(const torch::Tensor& matrix) const;

  Sizes sizes_;
  Kind kind_;
  std::shared_ptr<kernels::Attention> packed_;
  torch::Tensor workspace_;  // of packed_
};

}  // namespace lockstep::models
