#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/kernels/cuda_graph.h"
#include "lockstep/kernels/own_stream.h"

namespace lockstep::generate {

// The passes of a decoder whose weights are there while they are used only (ZeRO-3):
// its work is in run(), that of a layer in run_layer() inside of it.
struct WeightsInPasses {
  std::function<void(const std::function<void()>& pass)> run;
  using Compute = std::function<torch::Tensor(const torch::Tensor&)>;
  std::function<torch::Tensor(std::size_t layer, const Compute&, const torch::Tensor&)>
      run_layer;
  // Returns a weight of GptWeights::tensors with its values, in run_layer() of its
  // layer.
  std::function<torch::Tensor(const std::string& name)> weight;
};

// The weights of a GPT-2-like model, by the names of models/gpt.cpp, adapters merged.
struct GptWeights {
  std::int64_t heads = 0;
  std::int64_t vocabulary = 0;  // without padding
  std::map<std::string, torch::Tensor> tensors;
  // If set, `tensors` say shapes, types and devices; those of layers are asked for anew
  // in every pass.
  std::optional<WeightsInPasses> in_passes = {};
};

// Computes the next token's logits of several texts at once, each token only once: the
// keys and values of earlier ones are kept.
//
// The texts are rows of one batch. A row's logits do not depend on the other rows.
// Threads: one.
class Decoder {
 public:
  // Throws Fault::config for weights that are no such model. They are used as they are:
  // their dtype and device are those of the computation.
  explicit Decoder(GptWeights weights);

  std::int64_t context() const noexcept { return context_; }
  std::int64_t vocabulary() const noexcept { return weights_.vocabulary; }
  torch::Device device() const { return wte_.device(); }

  // Begins anew with so many empty rows, which have room for `room` tokens each.
  // REQUIRES: room <= context().
  void begin(std::int64_t rows, std::int64_t room);

  // Adds tokens to one row. Returns the logits behind the last of them, (vocabulary).
  torch::Tensor prefill(std::int64_t row, const std::vector<std::int64_t>& tokens);

  // Adds a token to each row. Returns the logits, (rows, vocabulary), which the next
  // step overwrites. On a GPU a CUDA graph holds the step.
  torch::Tensor step(const std::vector<std::int64_t>& tokens);

  // Keeps these rows only, which are 0, 1, ... then.
  void keep(const std::vector<std::int64_t>& rows);

  // Returns the number of tokens in a row.
  std::int64_t length(std::int64_t row) const {
    return lengths_[static_cast<std::size_t>(row)];
  }

 private:
  struct LayerWeights {
    torch::Tensor ln_1_weight, ln_1_bias, attn_weight, attn_bias;
    torch::Tensor proj_weight, proj_bias, ln_2_weight, ln_2_bias;
    torch::Tensor fc_weight, fc_bias, out_weight, out_bias;
  };
  struct Layer {
    LayerWeights weights;
    torch::Tensor keys, values;  // (rows, heads, room, hidden / heads)
  };
  // The queries of new tokens with the keys and values that they may look at.
  using Attend = std::function<torch::Tensor(Layer&, const torch::Tensor& qkv)>;

  const torch::Tensor& tensor(const std::string& name) const;
  using Find = std::function<torch::Tensor(const std::string& name)>;
  static LayerWeights layer_at(std::size_t number, const Find& find);
  torch::Tensor in_pass(const std::function<torch::Tensor()>& compute) const;
  torch::Tensor run(torch::Tensor x, const Attend& attend);
  torch::Tensor run_layer(std::size_t number, const torch::Tensor& x,
                          const Attend& attend);
  torch::Tensor prefill_in_pass(std::int64_t row,
                                const std::vector<std::int64_t>& tokens);
  torch::Tensor split_heads(const torch::Tensor& part) const;
  torch::Tensor step_by_hand(const std::vector<std::int64_t>& tokens);
  torch::Tensor step_by_graph(const std::vector<std::int64_t>& tokens);
  void compute_held();
  torch::Tensor compute_logits(const torch::Tensor& x) const;

  GptWeights weights_;
  std::int64_t context_ = 0, hidden_ = 0;
  torch::Tensor wte_, wpe_, ln_f_weight_, ln_f_bias_;
  std::vector<Layer> layers_;
  std::vector<std::int64_t> lengths_;

  // A step for these rows, with its inputs and its output at fixed addresses.
  struct Held {
    torch::Tensor inputs;  // (2, rows): tokens, and their positions
    torch::Tensor logits;
    std::unique_ptr<kernels::CudaGraph> graph;
  };
  std::optional<kernels::OwnStream> stream_;  // of a GPU
  std::optional<Held> held_;
};

}  // namespace lockstep::generate
