// A decoder-only transformer as GPT-2 is one, of LibTorch's operators: any size. It is
// the reference for its own backward pass, GptPass.
#include <cmath>

#include <torch/csrc/jit/frontend/tracer.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/models/dropout.h"
#include "lockstep/models/gpt_pass.h"
#include "lockstep/models/linear.h"
#include "lockstep/models/model.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

constexpr double kInitialDeviation = 0.02;

struct Sizes {
  std::int64_t vocabulary = 0;
  std::int64_t rows = 0;  // of the embedding, at least as many as tokens
  std::int64_t context = 0, hidden = 0, layers = 0, heads = 0;
  double dropout = 0;
};

// Causal attention within the segments of a row.
class AttentionImpl : public nn::Module {
 public:
  explicit AttentionImpl(const Sizes& sizes)
      : heads_(sizes.heads), drops_(sizes.dropout > 0), dropout_(sizes.dropout) {
    c_attn_ = register_module("c_attn", Linear(sizes.hidden, 3 * sizes.hidden));
    c_proj_ = register_module("c_proj", Linear(sizes.hidden, sizes.hidden));
    register_module("attn_dropout", dropout_);
  }

  // `mask` is true where a token may look; undefined: at itself and all before it.
  Tensor forward(const Tensor& x, const Tensor& mask) {
    const auto hidden = x.size(2);
    const auto split = c_attn_(x).split(hidden, 2);
    const auto heads = [&](const Tensor& part) {  // (B, heads, T, hidden / heads)
      return part.unflatten(2, {heads_, hidden / heads_}).transpose(1, 2);
    };
    const auto q = heads(split[0]), k = heads(split[1]), v = heads(split[2]);
    const auto seen =
        drops_ && is_training() ? by_hand(q, k, v, mask) : fused(q, k, v, mask);
    return c_proj_(seen.transpose(1, 2).flatten(2));
  }

  Linear& projection() { return c_proj_; }

 private:
  static Tensor fused(const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& mask) {
    // Without memory there is no device to choose the operator for.
    if (q.is_meta()) {
      return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(q, k, v));
    }
    return at::scaled_dot_product_attention(
        q, k, v, mask.defined() ? std::optional(mask) : std::nullopt, /*dropout_p=*/0,
        /*is_causal=*/!mask.defined());
  }

  // Attention weights are dropped by sample, which the fused operator can not.
  Tensor by_hand(const Tensor& q, const Tensor& k, const Tensor& v, Tensor mask) {
    const auto length = q.size(2);
    if (!mask.defined()) {
      mask = torch::ones({length, length}, q.options().dtype(torch::kBool)).tril();
    }
    const auto scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
    const auto scores = torch::matmul(q, k.transpose(2, 3)) * scale;
    const auto weights =
        scores.masked_fill(mask.logical_not(), -std::numeric_limits<float>::infinity())
            .softmax(3);
    return torch::matmul(dropout_(weights), v);
  }

  std::int64_t heads_;
  bool drops_;
  Dropout dropout_;
  Linear c_attn_{nullptr}, c_proj_{nullptr};
};
TORCH_MODULE(Attention);

class FeedForwardImpl : public nn::Module {
 public:
  explicit FeedForwardImpl(const Sizes& sizes) {
    c_fc_ = register_module("c_fc", Linear(sizes.hidden, 4 * sizes.hidden));
    c_proj_ = register_module("c_proj", Linear(4 * sizes.hidden, sizes.hidden));
  }
  Tensor forward(const Tensor& x) { return c_proj_(torch::gelu(c_fc_(x), "tanh")); }
  Linear& projection() { return c_proj_; }

 private:
  Linear c_fc_{nullptr}, c_proj_{nullptr};
};
TORCH_MODULE(FeedForward);

class LayerImpl : public nn::Module {
 public:
  explicit LayerImpl(const Sizes& sizes) : dropout_(sizes.dropout) {
    const nn::LayerNormOptions norm({sizes.hidden});
    ln_1_ = register_module("ln_1", nn::LayerNorm(norm));
    attn_ = register_module("attn", Attention(sizes));
    ln_2_ = register_module("ln_2", nn::LayerNorm(norm));
    mlp_ = register_module("mlp", FeedForward(sizes));
    register_module("dropout", dropout_);
  }
  Tensor forward(const Tensor& input, const Tensor& mask) {
    const auto x = input + dropout_(attn_(ln_1_(input), mask));
    return x + dropout_(mlp_(ln_2_(x)));
  }
  // The variance of these adds up over the blocks.
  std::vector<Tensor> residual_weights() {
    return {attn_->projection()->weight, mlp_->projection()->weight};
  }

 private:
  Dropout dropout_;
  nn::LayerNorm ln_1_{nullptr}, ln_2_{nullptr};
  Attention attn_{nullptr};
  FeedForward mlp_{nullptr};
};
TORCH_MODULE(Layer);

class Gpt : public Model, public OwnBackward {
 public:
  struct Kind {
    bool packed = false;
    bool own_backward = false;
  };
  Gpt(const Sizes& sizes, const Kind& kind)
      : sizes_(sizes),
        packed_(kind.packed),
        writes_backward_(kind.own_backward),
        dropout_(sizes.dropout) {
    wte_ = register_module("wte", make_embedding(sizes));
    wpe_ = register_module("wpe", nn::Embedding(sizes.context, sizes.hidden));
    register_module("dropout", dropout_);
    std::vector<Layer> blocks;
    const auto h = register_module("h", nn::ModuleList());
    for (std::int64_t i = 0; i < sizes.layers; ++i) {
      Layer block(sizes);
      h->push_back(block);
      blocks.push_back(block);
      add_block(block.ptr(), [this, block](const Tensor& x) mutable {
        return block->forward(x, mask_);
      });
    }
    ln_f_ =
        register_module("ln_f", nn::LayerNorm(nn::LayerNormOptions({sizes.hidden})));
    initialize(blocks);
  }

  std::vector<std::string> inputs() const override {
    return packed_ ? std::vector<std::string>{"input", "segment", "position"}
                   : std::vector<std::string>{"input"};
  }

  // (B, T) tokens -> (B, T, vocabulary)
  Tensor forward(const Tensor& tokens) override {
    mask_.reset();
    return logits(tokens, positions_in(tokens));
  }

  Named forward_named(const Named& inputs) override {
    if (!packed_) return Model::forward_named(inputs);
    mask_ = segment_mask(inputs.at("segment"));
    return {{"output", logits(inputs.at("input"), inputs.at("position"))}};
  }

  OwnBackward* own_backward() noexcept override {
    return writes_backward_ ? this : nullptr;
  }

  Named forward_kept(const Named& inputs) override {
    const auto& tokens = inputs.at("input");
    return {{"output", pass_over(tokens)
                           .forward(tokens, {})
                           .view({tokens.size(0), tokens.size(1), sizes_.rows})
                           .narrow(2, 0, sizes_.vocabulary)}};
  }

  void backward(const Named& gradients, GradientSink& sink) override {
    pass_->set_gradients(gradients.at("output"));
    pass_->backward(sink);
  }

  bool has_loss() const noexcept override { return true; }

  Tensor forward_loss(const Named& inputs, const ClassLoss& loss) override {
    const auto& tokens = inputs.at("input");
    auto& pass = pass_over(tokens);
    pass.forward(tokens, {});
    return pass.cross_entropy(loss.targets, {.scale_at = loss.scale}).sum();
  }

  void backward_loss(GradientSink& sink) override { pass_->backward(sink); }

  void release_memory() override {
    if (pass_) pass_->release_memory();
  }

  std::string choices() const override { return pass_ ? pass_->choices() : choices_; }
  void use_choices(const std::string& text) override {
    choices_ = text;
    if (pass_) pass_->use_choices(text);
  }
  void prepare(std::int64_t batch, at::IntArrayRef sample) override {
    if (sample.size() == 1) pass().prepare(batch, sample[0]);
  }

 private:
  GptPass& pass() {
    // Not before: parameters move and are converted until training begins.
    if (!pass_) {
      pass_ = std::make_unique<GptPass>(gpt_parameters(*this), sizes_.heads,
                                        sizes_.vocabulary);
      pass_->use_choices(choices_);
    }
    return *pass_;
  }

  // Returns the pass, ready for a batch of this shape.
  GptPass& pass_over(const Tensor& tokens) {
    check_length(tokens);
    pass().prepare(tokens.size(0), tokens.size(1));
    return *pass_;
  }

  void check_length(const Tensor& tokens) const {
    if (tokens.size(1) <= sizes_.context) return;
    throw Error(Fault::config, "model: a sequence has ", tokens.size(1),
                " tokens, the model was built for ", sizes_.context);
  }

  // Rows of no token are zeros, and draw no numbers: with or without them, a model
  // begins with the same weights.
  static nn::Embedding make_embedding(const Sizes& sizes) {
    nn::Embedding embedding(sizes.vocabulary, sizes.hidden);
    if (sizes.rows == sizes.vocabulary) return embedding;
    return nn::Embedding::from_pretrained(
        torch::constant_pad_nd(embedding->weight.detach(),
                               {0, 0, 0, sizes.rows - sizes.vocabulary}),
        nn::EmbeddingFromPretrainedOptions().freeze(false));
  }

  // Returns 0, 1, ... T - 1. A program that is written for any T counts tokens.
  static Tensor positions_in(const Tensor& tokens) {
    if (torch::jit::tracer::isTracing()) {
      return torch::ones_like(tokens.select(0, 0)).cumsum(0) - 1;
    }
    return torch::arange(tokens.size(1), tokens.options());
  }

  // No token looks beyond its segment, nor ahead. A token of none sees itself, so that
  // it has something to average.
  static Tensor segment_mask(const Tensor& segment) {
    const auto same = segment.unsqueeze(2).eq(segment.unsqueeze(1));
    return same.tril().unsqueeze(1);  // (B, 1, T, T)
  }

  Tensor logits(const Tensor& tokens, const Tensor& positions) {
    check_length(tokens);
    const auto x = run_blocks(dropout_(wte_(tokens) + wpe_(positions)));
    // The head is the embedding once more. Rows of no token are multiplied, since that
    // is faster, and are part of no loss and of no choice.
    const auto logits = torch::linear(ln_f_(x), wte_->weight);
    return sizes_.rows == sizes_.vocabulary ? logits
                                            : logits.narrow(2, 0, sizes_.vocabulary);
  }

  void initialize(std::vector<Layer>& blocks) {
    const torch::NoGradGuard no_grad;
    for (auto& item : named_parameters()) {
      auto value = item.value();
      if (item.key() == "wte.weight") value = value.narrow(0, 0, sizes_.vocabulary);
      const bool norm = item.key().find("ln_") != std::string::npos;
      if (value.dim() == 2) {
        value.normal_(0, kInitialDeviation);
      } else if (!norm) {
        value.zero_();
      }
    }
    const auto depth = static_cast<double>(2 * blocks.size());
    for (auto& block : blocks) {
      for (auto& weight : block->residual_weights()) {
        weight.normal_(0, kInitialDeviation / std::sqrt(depth));
      }
    }
  }

  const Sizes sizes_;
  const bool packed_, writes_backward_;
  Dropout dropout_;
  std::unique_ptr<GptPass> pass_;
  std::string choices_;  // of algorithms, for the pass
  nn::Embedding wte_{nullptr}, wpe_{nullptr};
  nn::LayerNorm ln_f_{nullptr};
  Tensor mask_;  // of the pass
};

bool has_field(const Shape& shape, std::string_view name) {
  for (const auto& tensor : shape.tensors) {
    if (tensor.name == name) return true;
  }
  return false;
}

// A recipe is settled when it is loaded; a program may say two things at once.
void check_size(const config::ModelConfig& config) {
  const auto* size = config::find_gpt_size(config.size);
  if (size == nullptr) return;
  if (config.hidden == size->hidden && config.layers == size->layers &&
      config.heads == size->heads) {
    return;
  }
  throw Error(Fault::config, "model.size: ", config.size, " is hidden=", size->hidden,
              ", layers=", size->layers, ", heads=", size->heads,
              ", but the knobs say hidden=", config.hidden, ", layers=", config.layers,
              ", heads=", config.heads, "; leave one of them out");
}

void check_own_backward(const config::ModelConfig& config, const Sizes& sizes,
                        bool packed) {
  if (!config.own_backward.value_or(false)) return;
  if (sizes.dropout > 0) {
    throw Error(Fault::config,
                "model.own_backward: the gpt's has no dropout, but model.dropout is ",
                sizes.dropout, "; set one of them to its default");
  }
  if (packed) {
    throw Error(Fault::config,
                "model.own_backward: the gpt's knows no documents within a sample; set "
                "it to false, or data.pack to false");
  }
  if (sizes.hidden > kernels::kWidestLayerNorm) {
    throw Error(Fault::config,
                "model.own_backward: the gpt's is for model.hidden up to ",
                kernels::kWidestLayerNorm, ", not ", sizes.hidden, "; set it to false");
  }
}

std::int64_t context_length(const config::ModelConfig& config, const Shape& shape) {
  if (config.context == 0) return shape.input[0];
  if (config.context >= shape.input[0]) return config.context;
  throw Error(Fault::config, "model.context: ", config.context,
              " positions, but a sample has ", shape.input[0],
              " tokens; raise model.context or shorten the samples");
}

}  // namespace

std::shared_ptr<Model> make_gpt(const config::ModelConfig& config, const Shape& shape) {
  if (shape.input.size() != 1 || shape.num_classes < 1) {
    throw Error(Fault::config,
                "model.name: gpt reads sequences of tokens, but a sample has shape ",
                c10::IntArrayRef(shape.input), " and ", shape.num_classes,
                " classes; choose data.name=tokens, or another model");
  }
  if (config.hidden % config.heads != 0) {
    throw Error(Fault::config, "model.heads: ", config.hidden,
                " (model.hidden) is not a multiple of ", config.heads,
                " heads: ", config.hidden, " = ", config.hidden / config.heads, " * ",
                config.heads, " + ", config.hidden % config.heads);
  }
  check_size(config);
  const auto multiple = config.pad_vocabulary;
  const Sizes sizes{.vocabulary = shape.num_classes,
                    .rows = (shape.num_classes + multiple - 1) / multiple * multiple,
                    .context = context_length(config, shape),
                    .hidden = config.hidden,
                    .layers = config.layers,
                    .heads = config.heads,
                    .dropout = config.dropout};
  const bool packed = has_field(shape, "segment");
  check_own_backward(config, sizes, packed);
  return std::make_shared<Gpt>(
      sizes,
      Gpt::Kind{.packed = packed, .own_backward = config.own_backward.value_or(false)});
}

}  // namespace lockstep::models
