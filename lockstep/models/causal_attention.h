#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace lockstep::models {

// Causal attention without autograd, by the operators of LibTorch that keep no scores.
// Queries, keys and values stay side by side in one matrix, as a layer makes them:
// nothing is transposed in memory.
class CausalAttention {
 public:
  enum class Kind {
    cpu,        // any device of the host
    cudnn,      // bf16 and fp16 on a GPU
    flash,      // likewise
    efficient,  // any type on a GPU
  };
  struct Sizes {
    std::int64_t batch = 0, length = 0, heads = 0, width = 0;  // of one head
  };

  CausalAttention(const Sizes& sizes, Kind kind) : sizes_(sizes), kind_(kind) {}

  // Returns kinds that work for such tensors, those that are usually faster first.
  static std::vector<Kind> kinds_for(const torch::Tensor& like);

  struct Kept {
    torch::Tensor out, statistics, seed, offset, starts_q, starts_k;
    std::int64_t longest_q = 0, longest_k = 0;
  };
  // `qkv` is (batch * length, 3 * heads * width). kept.out is (batch, heads, length,
  // width), in memory (batch * length, heads * width).
  Kept forward(const torch::Tensor& qkv) const;

  // The gradients by queries, keys and values: three matrices of (batch * length, heads
  // * width).
  struct Gradients {
    torch::Tensor q, k, v;
  };
  Gradients backward(const torch::Tensor& qkv, const Kept& kept,
                     const torch::Tensor& gradient) const;

  // Returns kept.out as a matrix of (batch * length, heads * width).
  torch::Tensor matrix(const torch::Tensor& out) const;
  Kind kind() const noexcept { return kind_; }

 private:
  struct Parts {
    torch::Tensor q, k, v;  // (batch, heads, length, width)
  };
  Parts split(const torch::Tensor& qkv) const;

  Sizes sizes_;
  Kind kind_;
};

}  // namespace lockstep::models
