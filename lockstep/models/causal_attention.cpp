#include "lockstep/models/causal_attention.h"

namespace lockstep::models {

using torch::Tensor;

std::vector<CausalAttention::Kind> CausalAttention::kinds_for(const Tensor& like) {
  if (like.device().is_cpu()) return {Kind::cpu};
  if (like.scalar_type() == torch::kFloat32) return {Kind::efficient};
  return {Kind::cudnn, Kind::flash};
}

CausalAttention::Parts CausalAttention::split(const Tensor& qkv) const {
  const auto& [batch, length, heads, width] = sizes_;
  const auto parts = qkv.view({batch, length, 3, heads, width}).unbind(2);
  return {parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2)};
}

Tensor CausalAttention::matrix(const Tensor& out) const {
  return out.transpose(1, 2).reshape(
      {sizes_.batch * sizes_.length, sizes_.heads * sizes_.width});
}

CausalAttention::Kept CausalAttention::forward(const Tensor& qkv) const {
  const auto [q, k, v] = split(qkv);
  Kept kept;
  switch (kind_) {
    case Kind::cpu:
      std::tie(kept.out, kept.statistics) =
          at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0, true);
      break;
    case Kind::efficient:
      std::tie(kept.out, kept.statistics, kept.seed, kept.offset) =
          at::_scaled_dot_product_efficient_attention(q, k, v, {}, true, 0, true);
      break;
    case Kind::cudnn:
    case Kind::flash: {
      const auto all =
          kind_ == Kind::cudnn
              ? at::_scaled_dot_product_cudnn_attention(q, k, v, {}, true, 0, true)
              : at::_scaled_dot_product_flash_attention(q, k, v, 0, true);
      kept = {.out = std::get<0>(all),
              .statistics = std::get<1>(all),
              .seed = std::get<6>(all),
              .offset = std::get<7>(all),
              .starts_q = std::get<2>(all),
              .starts_k = std::get<3>(all),
              .longest_q = std::get<4>(all).expect_int(),
              .longest_k = std::get<5>(all).expect_int()};
      break;
    }
  }
  return kept;
}

CausalAttention::Gradients CausalAttention::backward(const Tensor& qkv,
                                                     const Kept& kept,
                                                     const Tensor& gradient) const {
  const auto [q, k, v] = split(qkv);
  const auto& [batch, length, heads, width] = sizes_;
  const auto by_out = gradient.view({batch, length, heads, width}).transpose(1, 2);
  Tensor by_q, by_k, by_v, by_bias;
  switch (kind_) {
    case Kind::cpu:
      std::tie(by_q, by_k, by_v) =
          at::_scaled_dot_product_flash_attention_for_cpu_backward(
              by_out, q, k, v, kept.out, kept.statistics, 0, true);
      break;
    case Kind::efficient:
      std::tie(by_q, by_k, by_v, by_bias) =
          at::_scaled_dot_product_efficient_attention_backward(
              by_out, q, k, v, {}, kept.out, kept.statistics, kept.seed, kept.offset, 0,
              {true, true, true, false}, true);
      break;
    case Kind::cudnn:
      std::tie(by_q, by_k, by_v) = at::_scaled_dot_product_cudnn_attention_backward(
          by_out, q, k, v, kept.out, kept.statistics, kept.seed, kept.offset, {},
          kept.starts_q, kept.starts_k, kept.longest_q, kept.longest_k, 0, true);
      break;
    case Kind::flash:
      std::tie(by_q, by_k, by_v) = at::_scaled_dot_product_flash_attention_backward(
          by_out, q, k, v, kept.out, kept.statistics, kept.starts_q, kept.starts_k,
          kept.longest_q, kept.longest_k, 0, true, kept.seed, kept.offset);
      break;
  }
  return {matrix(by_q), matrix(by_k), matrix(by_v)};
}

}  // namespace lockstep::models
