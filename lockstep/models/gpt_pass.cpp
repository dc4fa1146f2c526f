#include "lockstep/models/gpt_pass.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::models {
namespace {

using kernels::Epilogue;
using torch::Tensor;

constexpr std::int64_t kGemmWorkspace = std::int64_t{64} << 20;
constexpr std::size_t kMostPlans = 8;  // more shapes than that vary

kernels::Number number_of(const Tensor& tensor) {
  if (tensor.scalar_type() == torch::kBFloat16) return kernels::Number::bf16;
  LOCKSTEP_CHECK(tensor.scalar_type() == torch::kFloat32, tensor.scalar_type());
  return kernels::Number::f32;
}

}  // namespace

GptParameters gpt_parameters(const torch::nn::Module& gpt) {
  const auto named = gpt.named_parameters();
  const auto dtype = named["wte.weight"].scalar_type();
  if (dtype != torch::kFloat32 && dtype != torch::kBFloat16) {
    throw Error(Fault::config,
                "model.own_backward: the gpt's is for float and bf16, but ",
                "its parameters are ", c10::toString(dtype),
                "; set precision.mode to fp32 or bf16_params");
  }
  for (const auto& item : named) {
    if (item.key().find("lora_") == std::string::npos) continue;
    throw Error(
        Fault::config,
        "model.own_backward: the gpt's has no adapters, but lora.rank is not 0; "
        "set one of them to its default");
  }
  const auto pair = [&](const std::string& name) {
    return GptPair{named[name + ".weight"], named[name + ".bias"]};
  };
  GptParameters all{.wte = named["wte.weight"],
                    .wpe = named["wpe.weight"],
                    .layers = {},
                    .ln_f = pair("ln_f")};
  for (int i = 0; named.contains(str("h.", i, ".ln_1.weight")); ++i) {
    const auto name = [&](const char* what) { return str("h.", i, ".", what); };
    all.layers.push_back({.ln_1 = pair(name("ln_1")),
                          .c_attn = pair(name("attn.c_attn")),
                          .attn_proj = pair(name("attn.c_proj")),
                          .ln_2 = pair(name("ln_2")),
                          .c_fc = pair(name("mlp.c_fc")),
                          .mlp_proj = pair(name("mlp.c_proj"))});
  }
  return all;
}

GptPass::GptPass(GptParameters parameters, std::int64_t heads, std::int64_t vocabulary)
    : parameters_(std::move(parameters)),
      heads_(heads),
      vocabulary_(vocabulary),
      hidden_(parameters_.wte.size(1)),
      rows_(parameters_.wte.size(0)),
      number_(number_of(parameters_.wte)),
      run_(parameters_.wte.device()) {
  if (run_.device().is_cpu()) return;
  if (!kernels::cuda_available() || !kernels::gemms_available()) {
    throw Error(
        Fault::hardware,
        "model.own_backward: this build has no kernels for GPUs, or no cuBLASLt; "
        "set it to false");
  }
  const c10::DeviceGuard guard(run_.device());
  const auto bytes = torch::dtype(torch::kUInt8).device(run_.device());
  gemm_workspace_ = torch::empty({kGemmWorkspace}, bytes);
  gemms_ = std::make_unique<kernels::Gemms>(gemm_workspace_.mutable_data_ptr(),
                                            kGemmWorkspace);
  const auto floats = std::max(kernels::layer_norm_workspace(hidden_),
                               kernels::pack_columns_workspace(4 * hidden_));
  sums_workspace_ = torch::empty({floats}, bytes.dtype(torch::kFloat32));
}

GptPass::~GptPass() = default;

GptPass::Plan GptPass::make_plan(std::int64_t batch, std::int64_t length) {
  const auto count = batch * length;
  const auto num_layers = static_cast<std::int64_t>(parameters_.layers.size());
  Plan plan{.batch = batch,
            .length = length,
            .count = count,
            .places = GptPlaces(
                {.layers = num_layers,
                 .hidden = hidden_,
                 .heads = heads_,
                 .rows = rows_,
                 .element = static_cast<std::int64_t>(parameters_.wte.element_size())},
                count)};
  const auto floats = parameters_.wte.options().dtype(torch::kFloat32);
  for (std::int64_t i = 0; i < num_layers; ++i) {
    plan.layers.push_back(
        {.statistics = torch::empty({4, count}, floats), .attention = {}});
  }
  plan.last_statistics = torch::empty({2, count}, floats);
  plan.losses = torch::empty({count}, floats);
  const auto index = torch::arange(count, floats.dtype(torch::kInt64));
  plan.row_order = index.view({batch, length}).t().contiguous().flatten();
  plan.row_keys = index.floor_divide(batch);
  plan.attention = make_attention({batch, length, heads_, hidden_ / heads_});
  return plan;
}

CausalAttention GptPass::make_attention(const CausalAttention::Sizes& sizes) const {
  const auto kinds = CausalAttention::kinds_for(parameters_.wte);
  if (kind_) return {sizes, *kind_};
  for (const auto kind : kinds) {
    try {
      return {sizes, kind};
    } catch (const Error& error) {
      // cuDNN may be there and still have no kernel for a size or a GPU.
      if (error.fault() != Fault::hardware || kind == kinds.back()) throw;
    }
  }
  throw Error(Fault::internal, "models: no attention for ", parameters_.wte.options());
}

void GptPass::take_plan(std::int64_t batch, std::int64_t length) {
  const auto found = std::find_if(plans_.begin(), plans_.end(), [&](const Plan& plan) {
    return plan.batch == batch && plan.length == length;
  });
  if (found != plans_.end()) {
    plans_.splice(plans_.begin(), plans_, found);
  } else {
    // The oldest goes: its tensors are few, but not none.
    if (plans_.size() >= kMostPlans && !plans_.back().is_held) plans_.pop_back();
    plans_.push_front(make_plan(batch, length));
  }
  plan_ = &plans_.front();
  take_memory();
  if (!run_.is_capturing()) return;
  plan_->is_held = true;
  memory_is_held_ = true;
}

void GptPass::take_memory() {
  if (memory_.defined() && memory_.numel() >= plan_->places.arena.bytes()) return;
  if (memory_is_held_) outgrown_.push_back(memory_);
  memory_ = Tensor();  // before the new one is there
  memory_is_held_ = false;
  memory_ = torch::empty({plan_->places.arena.bytes()},
                         parameters_.wte.options().dtype(torch::kUInt8));
}

void GptPass::release_memory() {
  if (memory_is_held_) return;
  memory_ = Tensor();
  plan_ = nullptr;
  // What a layer of attention has kept is theirs. A graph may need them beside memory
  // that was outgrown.
  std::erase_if(plans_, [](const Plan& plan) { return !plan.is_held; });
}

Tensor GptPass::view(std::size_t buffer, std::int64_t columns) const {
  const auto bytes = plan_->count * columns * parameters_.wte.element_size();
  return memory_.narrow(0, plan_->places.arena.at(buffer).offset, bytes)
      .view(parameters_.wte.scalar_type())
      .view({plan_->count, columns});
}

Tensor GptPass::input_of(std::size_t layer) const {
  return view(layer == 0 ? plan_->places.embedded : plan_->places.layers[layer - 1].sum,
              hidden_);
}

kernels::Gemm GptPass::gemm_of(const Product& product) const {
  const auto address = [](const Tensor& tensor) {
    return tensor.defined() ? tensor.mutable_data_ptr() : nullptr;
  };
  const auto& [out, a, b, a_transposed, b_transposed, epilogue, added, vector, aux] =
      product;
  return {.shape = {.m = out.size(0),
                    .n = out.size(1),
                    .k = a.size(a_transposed ? 0 : 1),
                    .a_transposed = a_transposed,
                    .b_transposed = b_transposed,
                    .number = number_,
                    .epilogue = epilogue,
                    .adds = added.defined()},
          .out = address(out),
          .a = address(a),
          .b = address(b),
          .added = address(added),
          .vector = address(vector),
          .aux = address(aux)};
}

void GptPass::multiply(const Product& product) {
  const auto gemm = gemm_of(product);
  if (tuning_ != nullptr && gemms_ && !gemms_->is_tuned(gemm.shape)) {
    tuning_->gemms.push_back(
        gemms_->tune(gemm, kernels::current_stream(run_.device().index())));
  } else {
    run_(gemm, gemms_.get());
  }
}

void GptPass::normalize(const NormForward& step) {
  const auto& [norm, in, out, statistics] = step;
  run_(kernels::LayerNorm{.out = out.mutable_data_ptr(),
                          .in = in.const_data_ptr(),
                          .weight = norm.weight.const_data_ptr(),
                          .bias = norm.bias.const_data_ptr(),
                          .mean = statistics[0].mutable_data_ptr<float>(),
                          .inverse = statistics[1].mutable_data_ptr<float>(),
                          .number = number_,
                          .rows = plan_->count,
                          .width = hidden_});
}

void GptPass::forward_layer(std::size_t index, const Tensor& in) {
  const auto& own = parameters_.layers[index];
  const auto& places = plan_->places.layers[index];
  auto& kept = plan_->layers[index];
  const auto ln_1 = view(places.ln_1, hidden_), ln_2 = view(places.ln_2, hidden_);
  const auto qkv = view(places.qkv, 3 * hidden_);
  const auto sum = view(places.attention_sum, hidden_);
  const auto gelu = view(places.gelu, 4 * hidden_);
  normalize({own.ln_1, in, ln_1, kept.statistics});
  multiply({.out = qkv,
            .a = ln_1,
            .b = own.c_attn.weight,
            .b_transposed = true,
            .epilogue = Epilogue::bias,
            .vector = own.c_attn.bias});
  plan_->attention->forward(qkv, kept.attention);
  multiply({.out = sum,
            .a = kept.attention.out,
            .b = own.attn_proj.weight,
            .b_transposed = true,
            .epilogue = Epilogue::bias,
            .added = in,
            .vector = own.attn_proj.bias});
  normalize({own.ln_2, sum, ln_2, kept.statistics.narrow(0, 2, 2)});
  multiply({.out = gelu,
            .a = ln_2,
            .b = own.c_fc.weight,
            .b_transposed = true,
            .epilogue = Epilogue::gelu,
            .vector = own.c_fc.bias,
            .aux = view(places.before_gelu, 4 * hidden_)});
  multiply({.out = view(places.sum, hidden_),
            .a = gelu,
            .b = own.mlp_proj.weight,
            .b_transposed = true,
            .epilogue = Epilogue::bias,
            .added = sum,
            .vector = own.mlp_proj.bias});
}

Tensor GptPass::forward(const Tensor& tokens, const Tensor& positions) {
  const torch::NoGradGuard no_grad;
  const c10::DeviceGuard guard(run_.device());
  LOCKSTEP_CHECK(tokens.dim() == 2 && tokens.scalar_type() == torch::kInt64 &&
                 tokens.size(1) <= parameters_.wpe.size(0));
  take_plan(tokens.size(0), tokens.size(1));
  tokens_ = tokens.contiguous();
  positions_ = positions.defined() ? positions.contiguous() : positions;
  run_(kernels::Embedding{.out = input_of(0).mutable_data_ptr(),
                          .tokens = tokens_.const_data_ptr<std::int64_t>(),
                          .positions = positions.defined()
                                           ? positions_.const_data_ptr<std::int64_t>()
                                           : nullptr,
                          .tokens_weight = parameters_.wte.const_data_ptr(),
                          .positions_weight = parameters_.wpe.const_data_ptr(),
                          .number = number_,
                          .count = plan_->count,
                          .length = plan_->length,
                          .width = hidden_});
  for (std::size_t i = 0; i < plan_->layers.size(); ++i) forward_layer(i, input_of(i));
  const auto last = view(plan_->places.last_norm, hidden_),
             logits = view(plan_->places.logits, rows_);
  normalize(
      {parameters_.ln_f, input_of(plan_->layers.size()), last, plan_->last_statistics});
  multiply({.out = logits, .a = last, .b = parameters_.wte, .b_transposed = true});
  return logits;
}

Tensor GptPass::cross_entropy(const Tensor& targets, const LossOptions& options) {
  const c10::DeviceGuard guard(run_.device());
  LOCKSTEP_CHECK(targets.numel() == plan_->count && targets.is_contiguous() &&
                 targets.scalar_type() == torch::kInt64);
  run_(kernels::CrossEntropy{
      .logits = view(plan_->places.logits, rows_).mutable_data_ptr(),
      .targets = targets.const_data_ptr<std::int64_t>(),
      .losses = plan_->losses.mutable_data_ptr<float>(),
      .number = number_,
      .rows = plan_->count,
      .columns = rows_,
      .classes = vocabulary_,
      .scale = static_cast<float>(options.scale),
      .scale_at = options.scale_at.defined() ? options.scale_at.const_data_ptr<float>()
                                             : nullptr});
  return plan_->losses;
}

void GptPass::set_gradients(const Tensor& by_logits) {
  const torch::NoGradGuard no_grad;
  auto all = view(plan_->places.logits, rows_);
  const auto given = by_logits.reshape({plan_->count, -1});
  all.narrow(1, 0, given.size(1)).copy_(given);
  if (given.size(1) < rows_) {
    all.narrow(1, given.size(1), rows_ - given.size(1)).zero_();
  }
}

}  // namespace lockstep::models
