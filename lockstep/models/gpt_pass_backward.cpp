#include "lockstep/base/error.h"
#include "lockstep/models/gpt_pass.h"

namespace lockstep::models {
namespace {

using torch::Tensor;

kernels::ColumnSums sums_at(const GradientSink::Destination& place) {
  if (!place.memory.defined()) return {};
  return {place.memory.mutable_data_ptr(), place.adds};
}

}  // namespace

bool GptPass::add_weight(const LinearBackward& step, GradientSink& sink) {
  const auto& [weight, gradient, input] = step;
  const auto place = sink.destination_of(weight);
  if (!place.memory.defined()) return false;
  multiply({.out = place.memory,
            .a = gradient,
            .b = input,
            .a_transposed = true,
            .added = place.adds ? place.memory : Tensor()});
  return true;
}

void GptPass::add_whole_weight(const LinearBackward& step, GradientSink& sink) {
  if (add_weight(step, sink)) sink.ready(step.weight);
}

float* GptPass::workspace() const {
  return sums_workspace_.defined() ? sums_workspace_.mutable_data_ptr<float>()
                                   : nullptr;
}

void GptPass::backward_norm(const NormBackward& step, GradientSink& sink) {
  const auto& norm = step.norm;
  const auto weight = sink.destination_of(norm.weight);
  const auto bias = sink.destination_of(norm.bias);
  const auto out_bias = step.out_bias.defined() ? sink.destination_of(step.out_bias)
                                                : GradientSink::Destination{};
  auto* out = view(plan_->places.residual, hidden_).mutable_data_ptr();
  run_(kernels::LayerNormBackward{.out = out,
                                  .gradient = step.gradient.const_data_ptr(),
                                  .through = step.has_through ? out : nullptr,
                                  .in = step.in.const_data_ptr(),
                                  .weight = norm.weight.const_data_ptr(),
                                  .mean = step.statistics[0].const_data_ptr<float>(),
                                  .inverse = step.statistics[1].const_data_ptr<float>(),
                                  .weight_gradient = sums_at(weight),
                                  .bias_gradient = sums_at(bias),
                                  .out_sums = sums_at(out_bias),
                                  .workspace = workspace(),
                                  .number = number_,
                                  .rows = plan_->count,
                                  .width = hidden_});
  if (weight.memory.defined()) sink.ready(norm.weight);
  if (bias.memory.defined()) sink.ready(norm.bias);
  if (out_bias.memory.defined()) sink.ready(step.out_bias);
}

void GptPass::backward_head(GradientSink& sink) {
  const auto logits = view(plan_->places.logits, rows_),
             small = view(plan_->places.small, hidden_);
  // The embedding's own part of this gradient comes last, so it is not ready yet.
  add_weight({parameters_.wte, logits, view(plan_->places.last_norm, hidden_)}, sink);
  multiply({.out = small, .a = logits, .b = parameters_.wte});
  backward_norm({.norm = parameters_.ln_f,
                 .gradient = small,
                 .in = input_of(plan_->layers.size()),
                 .statistics = plan_->last_statistics,
                 .has_through = false,
                 .out_bias = parameters_.layers.back().mlp_proj.bias},
                sink);
}

void GptPass::backward_layer(std::size_t index, GradientSink& sink) {
  const auto& own = parameters_.layers[index];
  const auto& places = plan_->places.layers[index];
  auto& kept = plan_->layers[index];
  const auto residual = view(plan_->places.residual, hidden_),
             small = view(plan_->places.small, hidden_);
  const auto wide = view(plan_->places.wide, 4 * hidden_);

  add_whole_weight({own.mlp_proj.weight, residual, view(places.gelu, 4 * hidden_)},
                   sink);
  // cuBLASLt's own epilogue for GELU's gradient takes four times the product's time.
  multiply({.out = wide, .a = residual, .b = own.mlp_proj.weight});
  const auto fc_bias = sink.destination_of(own.c_fc.bias);
  run_(kernels::GeluBackward{
      .out = wide.mutable_data_ptr(),
      .gradient = wide.const_data_ptr(),
      .in = view(places.before_gelu, 4 * hidden_).const_data_ptr(),
      .number = number_,
      .rows = plan_->count,
      .width = 4 * hidden_,
      .sums = sums_at(fc_bias),
      .workspace = workspace()});
  if (fc_bias.memory.defined()) sink.ready(own.c_fc.bias);
  add_whole_weight({own.c_fc.weight, wide, view(places.ln_2, hidden_)}, sink);
  multiply({.out = small, .a = wide, .b = own.c_fc.weight});
  backward_norm({.norm = own.ln_2,
                 .gradient = small,
                 .in = view(places.attention_sum, hidden_),
                 .statistics = kept.statistics.narrow(0, 2, 2),
                 .out_bias = own.attn_proj.bias},
                sink);

  add_whole_weight({own.attn_proj.weight, residual, kept.attention.out}, sink);
  multiply({.out = small, .a = residual, .b = own.attn_proj.weight});
  const auto qkv = view(places.qkv, 3 * hidden_),
             by_qkv = view(plan_->places.wide, 3 * hidden_);
  const auto gradients =
      plan_->attention->backward(qkv, {kept.attention, small, by_qkv});
  const auto place = sink.destination_of(own.c_attn.bias);
  kernels::PackColumns pack{.out = by_qkv.mutable_data_ptr(),
                            .num_parts = gradients.num_parts,
                            .sums = sums_at(place),
                            .workspace = workspace(),
                            .number = number_,
                            .rows = plan_->count,
                            .width = 3 * hidden_ / gradients.num_parts};
  for (int i = 0; i < pack.num_parts; ++i) {
    pack.parts[i] = gradients.parts[static_cast<std::size_t>(i)].const_data_ptr();
  }
  run_(pack);
  if (place.memory.defined()) sink.ready(own.c_attn.bias);
  add_whole_weight({own.c_attn.weight, by_qkv, view(places.ln_1, hidden_)}, sink);
  multiply({.out = small, .a = by_qkv, .b = own.c_attn.weight});
  backward_norm(
      {.norm = own.ln_1,
       .gradient = small,
       .in = input_of(index),
       .statistics = kept.statistics,
       .out_bias = index > 0 ? parameters_.layers[index - 1].mlp_proj.bias : Tensor()},
      sink);
}

void GptPass::add_embedding(const Tensor& weight, const SortedKeys& sorted,
                            GradientSink& sink) {
  const auto& [keys, order] = sorted;
  const auto place = sink.destination_of(weight);
  if (!place.memory.defined()) return;
  // The token embedding holds the head's part already, whatever came before this pass.
  const bool is_head = weight.is_same(parameters_.wte);
  if (!is_head && !place.adds) place.memory.zero_();
  run_(kernels::EmbeddingBackward{
      .weight_gradient = place.memory.mutable_data_ptr(),
      .gradient = view(plan_->places.residual, hidden_).const_data_ptr(),
      .keys = keys.const_data_ptr<std::int64_t>(),
      .order = order.const_data_ptr<std::int64_t>(),
      .adds = is_head || place.adds,
      .number = number_,
      .count = plan_->count,
      .width = hidden_});
  sink.ready(weight);
}

void GptPass::backward_embeddings(GradientSink& sink) {
  const auto sorted = [](const Tensor& keys) {
    return at::sort(keys.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  };
  if (positions_.defined()) {
    const auto [keys, order] = sorted(positions_);
    add_embedding(parameters_.wpe, {keys, order}, sink);
  } else {
    add_embedding(parameters_.wpe, {plan_->row_keys, plan_->row_order}, sink);
  }
  const auto [keys, order] = sorted(tokens_);
  add_embedding(parameters_.wte, {keys, order}, sink);
}

void GptPass::backward(GradientSink& sink) {
  const torch::NoGradGuard no_grad;
  const c10::DeviceGuard guard(run_.device());
  backward_head(sink);
  for (auto i = plan_->layers.size(); i-- > 0;) backward_layer(i, sink);
  backward_embeddings(sink);
}

}  // namespace lockstep::models
