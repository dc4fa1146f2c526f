#include "lockstep/models/causal_attention.h"

#include "lockstep/kernels/cuda.h"

namespace lockstep::models {

using torch::Tensor;

std::vector<CausalAttention::Kind> CausalAttention::kinds_for(const Tensor& like) {
  if (like.device().is_cpu()) return {Kind::cpu};
  if (like.scalar_type() == torch::kFloat32) return {Kind::efficient};
  if (like.scalar_type() == torch::kBFloat16 && kernels::Attention::is_available()) {
    return {Kind::packed, Kind::cudnn, Kind::flash};
  }
  return {Kind::cudnn, Kind::flash};
}

CausalAttention::CausalAttention(const Sizes& sizes, Kind kind)
    : sizes_(sizes), kind_(kind) {
  if (kind_ != Kind::packed) return;
  packed_ = std::make_shared<kernels::Attention>(sizes);
  workspace_ = torch::empty({static_cast<std::int64_t>(packed_->workspace_bytes())},
                            torch::dtype(torch::kUInt8).device(torch::kCUDA));
}

CausalAttention::Parts CausalAttention::split(const Tensor& qkv) const {
  const auto& [batch, length, heads, width] = sizes_;
  const auto parts = qkv.view({batch, length, 3, heads, width}).unbind(2);
  return {parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2)};
}

Tensor CausalAttention::matrix(const Tensor& heads) const {
  return heads.transpose(1, 2).reshape(
      {sizes_.batch * sizes_.length, sizes_.heads * sizes_.width});
}

Tensor CausalAttention::by_heads(const Tensor& matrix) const {
  const auto& [batch, length, heads, width] = sizes_;
  return matrix.view({batch, length, heads, width}).transpose(1, 2);
}

void CausalAttention::forward(const Tensor& qkv, Kept& kept) const {
  const auto& [batch, length, heads, width] = sizes_;
  if (kind_ == Kind::packed) {
    if (!kept.out.defined()) {
      kept.out = torch::empty({batch * length, heads * width}, qkv.options());
      kept.statistics =
          torch::empty({batch, heads, length}, qkv.options().dtype(torch::kFloat32));
    }
    return packed_->forward({.qkv = qkv.const_data_ptr(),
                             .out = kept.out.mutable_data_ptr(),
                             .sums = kept.statistics.mutable_data_ptr<float>(),
                             .workspace = workspace_.mutable_data_ptr()},
                            kernels::current_stream(qkv.device().index()));
  }
  const auto [q, k, v] = split(qkv);
  switch (kind_) {
    case Kind::cpu:
      std::tie(kept.out, kept.statistics) =
          at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0, true);
      break;
    case Kind::efficient:
      std::tie(kept.out, kept.statistics, kept.seed, kept.offset) =
          at::_scaled_dot_product_efficient_attention(q, k, v, {}, true, 0, true);
      break;
    default: {
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
  kept.out = matrix(kept.out);
}

CausalAttention::Gradients CausalAttention::backward(const Tensor& qkv,
                                                     const Backward& step) const {
  const auto& [kept, gradient, by_qkv] = step;
  if (kind_ == Kind::packed) {
    packed_->backward({.qkv = qkv.const_data_ptr(),
                       .out = kept.out.mutable_data_ptr(),
                       .sums = kept.statistics.mutable_data_ptr<float>(),
                       .by_out = gradient.const_data_ptr(),
                       .by_qkv = by_qkv.mutable_data_ptr(),
                       .workspace = workspace_.mutable_data_ptr()},
                      kernels::current_stream(qkv.device().index()));
    return {.parts = {by_qkv}, .num_parts = 1};
  }
  const auto [q, k, v] = split(qkv);
  const auto out = by_heads(kept.out), by_out = by_heads(gradient);
  Tensor by_q, by_k, by_v, by_bias;
  switch (kind_) {
    case Kind::cpu:
      std::tie(by_q, by_k, by_v) =
          at::_scaled_dot_product_flash_attention_for_cpu_backward(
              by_out, q, k, v, out, kept.statistics, 0, true);
      break;
    case Kind::efficient:
      std::tie(by_q, by_k, by_v, by_bias) =
          at::_scaled_dot_product_efficient_attention_backward(
              by_out, q, k, v, {}, out, kept.statistics, kept.seed, kept.offset, 0,
              {true, true, true, false}, true);
      break;
    case Kind::cudnn:
      std::tie(by_q, by_k, by_v) = at::_scaled_dot_product_cudnn_attention_backward(
          by_out, q, k, v, out, kept.statistics, kept.seed, kept.offset, {},
          kept.starts_q, kept.starts_k, kept.longest_q, kept.longest_k, 0, true);
      break;
    default:
      std::tie(by_q, by_k, by_v) = at::_scaled_dot_product_flash_attention_backward(
          by_out, q, k, v, out, kept.statistics, kept.starts_q, kept.starts_k,
          kept.longest_q, kept.longest_k, 0, true, kept.seed, kept.offset);
      break;
  }
  return {.parts = {matrix(by_q), matrix(by_k), matrix(by_v)}};
}

}  // namespace lockstep::models
