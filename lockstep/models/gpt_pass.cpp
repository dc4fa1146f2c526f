#include "lockstep/models/gpt_pass.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::models {
namespace {

using kernels::Epilogue;
using torch::Tensor;

constexpr std::int64_t kGemmWorkspace = std::int64_t{64} << 20;

kernels::Number number_of(const Tensor& tensor) {
  if (tensor.scalar_type() == torch::kBFloat16) return kernels::Number::bf16;
  LOCKSTEP_CHECK(tensor.scalar_type() == torch::kFloat32, tensor.scalar_type());
  return kernels::Number::f32;
}

// Moments of a pass of `layers` layers, for the plan of its memory.
struct Moments {
  int layers;
  int forward(int layer) const { return 1 + layer; }
  int head() const { return layers + 1; }
  int head_backward() const { return layers + 2; }
  int mlp_backward(int layer) const { return layers + 3 + 2 * (layers - 1 - layer); }
  int attention_backward(int layer) const { return mlp_backward(layer) + 1; }
  int end() const { return 3 * layers + 3; }
};

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

void GptPass::plan(std::int64_t batch, std::int64_t length) {
  if (batch == batch_ && length == length_) return;
  batch_ = batch, length_ = length, count_ = batch * length;
  arena_ = Arena();
  layers_.clear();
  const auto num_layers = static_cast<int>(parameters_.layers.size());
  const Moments moments{num_layers};
  const auto element = static_cast<std::int64_t>(parameters_.wte.element_size());
  const auto add = [&](std::string name, std::int64_t columns, int first, int last) {
    return arena_.add({std::move(name), count_ * columns * element, first, last});
  };
  const auto floats = parameters_.wte.options().dtype(torch::kFloat32);
  embedded_ = add("embeddings", hidden_, 0, moments.attention_backward(0));
  for (int i = 0; i < num_layers; ++i) {
    const auto begin = moments.forward(i), mlp = moments.mlp_backward(i);
    const auto end = moments.attention_backward(i);
    const auto next = i + 1 < num_layers ? moments.attention_backward(i + 1)
                                         : moments.head_backward();
    const auto name = [&](const char* what) { return str("h.", i, ".", what); };
    layers_.push_back({.ln_1 = add(name("ln_1"), hidden_, begin, end),
                       .qkv = add(name("qkv"), 3 * hidden_, begin, end),
                       .attention_sum = add(name("attention sum"), hidden_, begin, mlp),
                       .ln_2 = add(name("ln_2"), hidden_, begin, mlp),
                       .before_gelu = add(name("before gelu"), 4 * hidden_, begin, mlp),
                       .gelu = add(name("gelu"), 4 * hidden_, begin, mlp),
                       .sum = add(name("sum"), hidden_, begin, next),
                       .statistics = torch::empty({4, count_}, floats),
                       .attention = {}});
  }
  last_norm_ = add("ln_f", hidden_, moments.head(), moments.head_backward());
  logits_ = add("logits", rows_, moments.head(), moments.head_backward());
  const auto back = moments.head_backward();
  residual_ = add("gradient by the sums", hidden_, back, moments.end());
  small_ = add("gradient by a norm", hidden_, back, moments.end());
  wide_ = add("gradient within a layer", 4 * hidden_, back + 1, moments.end() - 1);
  arena_.place();
  memory_ = torch::Tensor();  // before the new one is there
  memory_ = torch::empty({arena_.bytes()}, floats.dtype(torch::kUInt8));
  last_statistics_ = torch::empty({2, count_}, floats);
  losses_ = torch::empty({count_}, floats);
  const auto index = torch::arange(count_, floats.dtype(torch::kInt64));
  row_order_ = index.view({batch, length}).t().contiguous().flatten();
  row_keys_ = index.floor_divide(batch);
  const CausalAttention::Sizes sizes{batch, length, heads_, hidden_ / heads_};
  const auto kind = kind_.value_or(CausalAttention::kinds_for(parameters_.wte).front());
  attention_.emplace(sizes, kind);
}

Tensor GptPass::view(std::size_t buffer, std::int64_t columns) const {
  const auto bytes = count_ * columns * parameters_.wte.element_size();
  return memory_.narrow(0, arena_.at(buffer).offset, bytes)
      .view(parameters_.wte.scalar_type())
      .view({count_, columns});
}

Tensor GptPass::input_of(std::size_t layer) const {
  return view(layer == 0 ? embedded_ : layers_[layer - 1].sum, hidden_);
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
                          .rows = count_,
                          .width = hidden_});
}

void GptPass::forward_layer(std::size_t index, const Tensor& in) {
  const auto& own = parameters_.layers[index];
  auto& buffers = layers_[index];
  const auto ln_1 = view(buffers.ln_1, hidden_), ln_2 = view(buffers.ln_2, hidden_);
  const auto qkv = view(buffers.qkv, 3 * hidden_);
  const auto sum = view(buffers.attention_sum, hidden_);
  const auto gelu = view(buffers.gelu, 4 * hidden_);
  normalize({own.ln_1, in, ln_1, buffers.statistics});
  multiply({.out = qkv,
            .a = ln_1,
            .b = own.c_attn.weight,
            .b_transposed = true,
            .epilogue = Epilogue::bias,
            .vector = own.c_attn.bias});
  buffers.attention = attention_->forward(qkv);
  multiply({.out = sum,
            .a = attention_->matrix(buffers.attention.out),
            .b = own.attn_proj.weight,
            .b_transposed = true,
            .epilogue = Epilogue::bias,
            .added = in,
            .vector = own.attn_proj.bias});
  normalize({own.ln_2, sum, ln_2, buffers.statistics.narrow(0, 2, 2)});
  multiply({.out = gelu,
            .a = ln_2,
            .b = own.c_fc.weight,
            .b_transposed = true,
            .epilogue = Epilogue::gelu,
            .vector = own.c_fc.bias,
            .aux = view(buffers.before_gelu, 4 * hidden_)});
  multiply({.out = view(buffers.sum, hidden_),
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
  plan(tokens.size(0), tokens.size(1));
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
                          .count = count_,
                          .length = length_,
                          .width = hidden_});
  for (std::size_t i = 0; i < layers_.size(); ++i) forward_layer(i, input_of(i));
  const auto last = view(last_norm_, hidden_), logits = view(logits_, rows_);
  normalize({parameters_.ln_f, input_of(layers_.size()), last, last_statistics_});
  multiply({.out = logits, .a = last, .b = parameters_.wte, .b_transposed = true});
  return logits;
}

Tensor GptPass::cross_entropy(const Tensor& targets, const LossOptions& options) {
  const c10::DeviceGuard guard(run_.device());
  LOCKSTEP_CHECK(targets.numel() == count_ && targets.is_contiguous() &&
                 targets.scalar_type() == torch::kInt64);
  run_(kernels::CrossEntropy{.logits = view(logits_, rows_).mutable_data_ptr(),
                             .targets = targets.const_data_ptr<std::int64_t>(),
                             .losses = losses_.mutable_data_ptr<float>(),
                             .number = number_,
                             .rows = count_,
                             .columns = rows_,
                             .classes = vocabulary_,
                             .scale = static_cast<float>(options.scale),
                             .scale_at = options.scale_at.defined()
                                             ? options.scale_at.const_data_ptr<float>()
                                             : nullptr});
  return losses_;
}

void GptPass::set_gradients(const Tensor& by_logits) {
  const torch::NoGradGuard no_grad;
  auto all = view(logits_, rows_);
  const auto given = by_logits.reshape({count_, -1});
  all.narrow(1, 0, given.size(1)).copy_(given);
  if (given.size(1) < rows_) {
    all.narrow(1, given.size(1), rows_ - given.size(1)).zero_();
  }
}

}  // namespace lockstep::models
