#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/kernels/runner.h"
#include "lockstep/models/causal_attention.h"
#include "lockstep/models/gpt_places.h"
#include "lockstep/models/gradient_sink.h"

namespace lockstep::models {

// A LayerNorm or a linear layer.
struct GptPair {
  torch::Tensor weight, bias;
};
struct GptLayerParameters {
  GptPair ln_1, c_attn, attn_proj, ln_2, c_fc, mlp_proj;
};
// The parameters of a GPT, all of one dtype, float or bf16, and on one device.
struct GptParameters {
  torch::Tensor wte, wpe;
  std::vector<GptLayerParameters> layers;
  GptPair ln_f;
};

// Returns those of a model with the names of gpt.cpp. Throws Fault::config for adapters
// and for another dtype.
GptParameters gpt_parameters(const torch::nn::Module& gpt);

// The forward and the backward pass of a GPT without dropout, written out: fused
// kernels, products with their epilogues, and one piece of memory for all activations,
// of which the plan is made once for a shape of batches. No graph of autograd's.
//
//   pass.forward(tokens, {});
//   losses = pass.cross_entropy(targets, {.scale = 1.0 / tokens.numel()});
//   pass.backward(sink);
class GptPass {
 public:
  GptPass(GptParameters parameters, std::int64_t heads, std::int64_t vocabulary);
  ~GptPass();
  GptPass(const GptPass&) = delete;
  GptPass& operator=(const GptPass&) = delete;

  // (B, T) tokens -> (B * T, rows of the embedding) logits, in the arena: valid until
  // the next call. `positions` like tokens; undefined: 0, 1, ... in each row.
  torch::Tensor forward(const torch::Tensor& tokens, const torch::Tensor& positions);

  struct LossOptions {
    double scale = 1;
    torch::Tensor scale_at = {};  // one float on the device that multiplies it
  };
  // Returns the loss of each token, in float; the logits become their gradients times
  // the scale.
  torch::Tensor cross_entropy(const torch::Tensor& targets, const LossOptions& options);
  // Instead of it: the gradients by the logits, (B * T, vocabulary or more).
  void set_gradients(const torch::Tensor& by_logits);

  // Puts the gradient of every parameter into the sink, the last layer's first.
  void backward(GradientSink& sink);

  // Measures, for batches of this shape, which algorithm of each product and which
  // attention is the fastest. Optional; overwrites activations.
  struct Tuned {
    std::vector<kernels::Gemms::Tuned> gemms;
    std::vector<std::string> attention;  // what was tried, and its time
    double attention_ms = 0;             // of the fastest, both ways
  };
  Tuned tune(std::int64_t batch, std::int64_t length);

  // Calls tune() if there are products of this shape that have not been measured; not
  // while a CUDA graph is captured.
  void prepare(std::int64_t batch, std::int64_t length);

  // The algorithms that tune() has chosen, as text, to be kept for this machine; what
  // is read back takes their place.
  std::string choices() const;
  void use_choices(const std::string& text);

  // Gives back the memory of activations, unless a CUDA graph holds it. A forward pass
  // takes it anew.
  void release_memory();

  // Of the last pass.
  const Arena& arena() const noexcept { return plan_->places.arena; }

 private:
  struct KeptOfLayer {
    torch::Tensor statistics;  // of both LayerNorms: (4, tokens)
    CausalAttention::Kept attention;
  };
  // The layout of a pass over batches of one shape. Its tensors stay where they are,
  // for CUDA graphs.
  struct Plan {
    std::int64_t batch = 0, length = 0, count = 0;  // of tokens
    GptPlaces places;
    std::vector<KeptOfLayer> layers;
    torch::Tensor last_statistics, losses;
    torch::Tensor row_keys, row_order;  // the positions 0, 1, ... of each row, sorted
    std::optional<CausalAttention> attention;
    bool is_held = false;  // by a CUDA graph
  };
  // Which matrices a product gets, and what follows it.
  struct Product {
    torch::Tensor out, a, b;
    bool a_transposed = false, b_transposed = false;
    kernels::Epilogue epilogue = kernels::Epilogue::none;
    torch::Tensor added = {}, vector = {}, aux = {};
  };

  // Makes plan_ and memory_ those of the shape.
  void take_plan(std::int64_t batch, std::int64_t length);
  Plan make_plan(std::int64_t batch, std::int64_t length);
  void take_memory();
  CausalAttention make_attention(const CausalAttention::Sizes& sizes) const;
  torch::Tensor view(std::size_t buffer, std::int64_t columns) const;
  kernels::Gemm gemm_of(const Product& product) const;
  void multiply(const Product& product);
  struct NormForward {
    const GptPair& norm;
    torch::Tensor in, out, statistics;
  };
  void normalize(const NormForward& step);
  void forward_layer(std::size_t index, const torch::Tensor& in);
  void backward_layer(std::size_t index, GradientSink& sink);
  void backward_head(GradientSink& sink);
  void backward_embeddings(GradientSink& sink);
  // The gradient goes through a LayerNorm and joins the one around it, in residual_.
  struct NormBackward {
    const GptPair& norm;
    torch::Tensor gradient, in, statistics;
    bool has_through = true;
    torch::Tensor out_bias = {};  // whose gradient is the sum of the result
  };
  void backward_norm(const NormBackward& step, GradientSink& sink);
  struct LinearBackward {
    const torch::Tensor& weight;
    torch::Tensor gradient, input;
  };
  // Returns whether it is trained. Asks once: then something is there, to some sinks.
  bool add_weight(const LinearBackward& step, GradientSink& sink);
  // The same, and nothing else comes to it.
  void add_whole_weight(const LinearBackward& step, GradientSink& sink);
  struct SortedKeys {
    torch::Tensor keys, order;
  };
  void add_embedding(const torch::Tensor& weight, const SortedKeys& sorted,
                     GradientSink& sink);
  void tune_attention(Tuned& tuned);
  float* workspace() const;  // for sums over rows; null on a CPU
  torch::Tensor input_of(std::size_t layer) const;

  const GptParameters parameters_;
  const std::int64_t heads_, vocabulary_, hidden_, rows_;
  const kernels::Number number_;
  const kernels::Runner run_;
  std::unique_ptr<kernels::Gemms> gemms_;
  torch::Tensor gemm_workspace_, sums_workspace_;

  std::list<Plan> plans_;  // the last used first
  Plan* plan_ = nullptr;   // of the pass
  std::optional<CausalAttention::Kind> kind_;
  torch::Tensor memory_;                 // of all plans, which take turns
  bool memory_is_held_ = false;          // by a CUDA graph
  std::vector<torch::Tensor> outgrown_;  // memory that CUDA graphs still hold
  torch::Tensor tokens_, positions_;     // of the pass
  std::vector<std::pair<std::int64_t, std::int64_t>> prepared_;  // shapes
  Tuned* tuning_ = nullptr;                                      // while tune() runs
};

}  // namespace lockstep::models
