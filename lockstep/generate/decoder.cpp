#include "lockstep/generate/decoder.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::generate {

using torch::Tensor;

namespace {

constexpr double kEpsilon = 1e-5;
constexpr std::int64_t kRoomUnit = 128;

Tensor norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return torch::layer_norm(x, {x.size(-1)}, weight, bias, kEpsilon);
}

}  // namespace

const Tensor& Decoder::tensor(const std::string& name) const {
  const auto found = weights_.tensors.find(name);
  if (found != weights_.tensors.end()) return found->second;
  throw Error(Fault::config, "generate: the weights have no '", name,
              "'; only models like GPT-2 (model.name=gpt) generate text");
}

Decoder::LayerWeights Decoder::layer_at(std::size_t number, const Find& find) {
  const auto at = [&](const std::string& name) {
    return find("h." + std::to_string(number) + "." + name);
  };
  LayerWeights layer;
  layer.ln_1_weight = at("ln_1.weight");
  layer.ln_1_bias = at("ln_1.bias");
  layer.attn_weight = at("attn.c_attn.weight");
  layer.attn_bias = at("attn.c_attn.bias");
  layer.proj_weight = at("attn.c_proj.weight");
  layer.proj_bias = at("attn.c_proj.bias");
  layer.ln_2_weight = at("ln_2.weight");
  layer.ln_2_bias = at("ln_2.bias");
  layer.fc_weight = at("mlp.c_fc.weight");
  layer.fc_bias = at("mlp.c_fc.bias");
  layer.out_weight = at("mlp.c_proj.weight");
  layer.out_bias = at("mlp.c_proj.bias");
  return layer;
}

Decoder::Decoder(GptWeights weights) : weights_(std::move(weights)) {
  wte_ = tensor("wte.weight");
  wpe_ = tensor("wpe.weight");
  ln_f_weight_ = tensor("ln_f.weight");
  ln_f_bias_ = tensor("ln_f.bias");
  context_ = wpe_.size(0);
  hidden_ = wte_.size(1);
  if (weights_.heads < 1 || hidden_ % weights_.heads != 0) {
    throw Error(Fault::config, "generate: ", weights_.heads,
                " heads do not divide the width ", hidden_, " of the model");
  }
  if (weights_.vocabulary < 1) weights_.vocabulary = wte_.size(0);
  // No graph holds a pass that waits for other ranks.
  if (device().is_cuda() && kernels::CudaGraph::is_available() && !weights_.in_passes) {
    stream_.emplace(device(), /*wanted=*/true);
  }
  const auto find = [this](const std::string& name) { return tensor(name); };
  for (std::size_t i = 0;
       weights_.tensors.contains("h." + std::to_string(i) + ".ln_1.weight"); ++i) {
    layers_.push_back({.weights = layer_at(i, find), .keys = {}, .values = {}});
  }
}

Tensor Decoder::in_pass(const std::function<Tensor()>& compute) const {
  if (!weights_.in_passes) return compute();
  Tensor out;
  weights_.in_passes->run([&] { out = compute(); });
  return out;
}

void Decoder::begin(std::int64_t rows, std::int64_t room) {
  LOCKSTEP_CHECK(rows > 0 && room > 0 && room <= context_, rows, " ", room);
  lengths_.assign(static_cast<std::size_t>(rows), 0);
  if (stream_) {
    // A graph is captured for one size: texts of about one length share it.
    room = std::min(context_, (room + kRoomUnit - 1) / kRoomUnit * kRoomUnit);
    const auto& keys = layers_[0].keys;
    if (held_ && keys.size(0) == rows && keys.size(2) == room) return;
  }
  held_.reset();
  for (auto& layer : layers_) {
    layer.keys = torch::zeros({rows, weights_.heads, room, hidden_ / weights_.heads},
                              wte_.options());
    layer.values = torch::zeros_like(layer.keys);
  }
}

// (B, T, hidden) -> (B, heads, T, hidden / heads)
Tensor Decoder::split_heads(const Tensor& part) const {
  return part
      .view({part.size(0), part.size(1), weights_.heads, hidden_ / weights_.heads})
      .transpose(1, 2);
}

Tensor Decoder::run_layer(std::size_t number, const Tensor& x, const Attend& attend) {
  auto& layer = layers_[number];
  const auto& passes = weights_.in_passes;
  const auto w = passes ? layer_at(number, passes->weight) : layer.weights;
  const auto qkv =
      torch::linear(norm(x, w.ln_1_weight, w.ln_1_bias), w.attn_weight, w.attn_bias);
  const auto seen = attend(layer, qkv).transpose(1, 2).reshape_as(x);
  const auto y = x + torch::linear(seen, w.proj_weight, w.proj_bias);
  const auto inner =
      torch::linear(norm(y, w.ln_2_weight, w.ln_2_bias), w.fc_weight, w.fc_bias);
  return y + torch::linear(torch::gelu(inner, "tanh"), w.out_weight, w.out_bias);
}

Tensor Decoder::run(Tensor x, const Attend& attend) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto compute = [&](const Tensor& in) { return run_layer(i, in, attend); };
    x = weights_.in_passes ? weights_.in_passes->run_layer(i, compute, x) : compute(x);
  }
  return x;
}

// (rows, hidden) -> (rows, vocabulary)
Tensor Decoder::compute_logits(const Tensor& x) const {
  return torch::linear(norm(x, ln_f_weight_, ln_f_bias_),
                       wte_.narrow(0, 0, weights_.vocabulary))
      .to(torch::kFloat32);
}

Tensor Decoder::prefill(std::int64_t row, const std::vector<std::int64_t>& tokens) {
  const torch::NoGradGuard no_grad;
  return in_pass([&] { return prefill_in_pass(row, tokens); });
}

Tensor Decoder::prefill_in_pass(std::int64_t row,
                                const std::vector<std::int64_t>& tokens) {
  auto& length = lengths_.at(static_cast<std::size_t>(row));
  const auto count = static_cast<std::int64_t>(tokens.size());
  const auto begin = length;
  LOCKSTEP_CHECK(count > 0 && begin + count <= layers_[0].keys.size(2), begin, " ",
                 count);
  const auto input = torch::tensor(tokens).to(device()).unsqueeze(0);
  const auto x = torch::embedding(wte_, input) + wpe_.narrow(0, begin, count);
  const auto out = run(x, [&](Layer& layer, const Tensor& qkv) {
    const auto parts = qkv.split(hidden_, 2);
    auto keys = layer.keys.narrow(0, row, 1).narrow(2, 0, begin + count);
    auto values = layer.values.narrow(0, row, 1).narrow(2, 0, begin + count);
    keys.narrow(2, begin, count).copy_(split_heads(parts[1]));
    values.narrow(2, begin, count).copy_(split_heads(parts[2]));
    const auto q = split_heads(parts[0]);
    if (begin == 0) {
      return at::scaled_dot_product_attention(q, keys, values, std::nullopt, 0,
                                              /*is_causal=*/count > 1);
    }
    const auto mask =
        torch::ones({count, begin + count}, q.options().dtype(torch::kBool))
            .tril(begin);
    return at::scaled_dot_product_attention(q, keys, values, mask);
  });
  length += count;
  return compute_logits(out[0].select(0, count - 1).unsqueeze(0))[0];
}

Tensor Decoder::step(const std::vector<std::int64_t>& tokens) {
  const torch::NoGradGuard no_grad;
  LOCKSTEP_CHECK(tokens.size() == lengths_.size());
  auto logits =
      stream_ ? step_by_graph(tokens) : in_pass([&] { return step_by_hand(tokens); });
  for (auto& length : lengths_) ++length;
  return logits;
}

// Everything that changes from step to step is in the two rows of `inputs`: all rows
// look at all of the room, behind a mask.
void Decoder::compute_held() {
  const auto tokens = held_->inputs[0], positions = held_->inputs[1];
  const auto rows = tokens.size(0), room = layers_[0].keys.size(2);
  const auto mask = torch::arange(room, positions.options())
                        .unsqueeze(0)
                        .le(positions.unsqueeze(1))
                        .view({rows, 1, 1, room});
  const auto place = positions.view({rows, 1, 1, 1})
                         .expand({rows, weights_.heads, 1, hidden_ / weights_.heads});
  const auto x = torch::embedding(wte_, tokens.unsqueeze(1)) +
                 torch::embedding(wpe_, positions.unsqueeze(1));
  const auto out = run(x, [&](Layer& layer, const Tensor& qkv) {
    const auto parts = qkv.split(hidden_, 2);
    layer.keys.scatter_(2, place, split_heads(parts[1]));
    layer.values.scatter_(2, place, split_heads(parts[2]));
    return at::scaled_dot_product_attention(split_heads(parts[0]), layer.keys,
                                            layer.values, mask);
  });
  held_->logits.copy_(compute_logits(out.squeeze(1)));
}

Tensor Decoder::step_by_graph(const std::vector<std::int64_t>& tokens) {
  const kernels::OwnStream::Scope on_stream(*stream_);
  const auto rows = static_cast<std::int64_t>(tokens.size());
  auto both = tokens;
  both.insert(both.end(), lengths_.begin(), lengths_.end());
  if (!held_) {
    held_.emplace();
    held_->inputs = torch::zeros({2, rows}, wte_.options().dtype(torch::kInt64));
    held_->logits = torch::zeros({rows, weights_.vocabulary},
                                 wte_.options().dtype(torch::kFloat32));
  }
  held_->inputs.copy_(torch::tensor(both).view({2, rows}));
  if (held_->graph) {
    held_->graph->replay();
    return held_->logits;
  }
  compute_held();  // libraries warm up; what it has computed is computed again
  held_->graph = std::make_unique<kernels::CudaGraph>();
  held_->graph->capture([this] { compute_held(); });
  return held_->logits;
}

Tensor Decoder::step_by_hand(const std::vector<std::int64_t>& tokens) {
  const auto rows = static_cast<std::int64_t>(lengths_.size());
  const auto longest = *std::max_element(lengths_.begin(), lengths_.end());
  LOCKSTEP_CHECK(longest < layers_[0].keys.size(2), longest);
  const bool alike = std::all_of(lengths_.begin(), lengths_.end(),
                                 [&](auto length) { return length == longest; });
  const auto positions = torch::tensor(lengths_).to(device());
  Tensor mask;  // (rows, 1, 1, longest + 1): each row's own tokens
  if (!alike) {
    mask = torch::arange(longest + 1, positions.options())
               .unsqueeze(0)
               .le(positions.unsqueeze(1))
               .view({rows, 1, 1, longest + 1});
  }
  const auto input = torch::tensor(tokens).to(device()).unsqueeze(1);
  const auto x =
      torch::embedding(wte_, input) + torch::embedding(wpe_, positions.unsqueeze(1));
  const auto each = torch::arange(rows, positions.options());
  const auto out = run(x, [&](Layer& layer, const Tensor& qkv) {
    const auto parts = qkv.split(hidden_, 2);
    const auto k = split_heads(parts[1]), v = split_heads(parts[2]);
    if (alike) {
      layer.keys.narrow(2, longest, 1).copy_(k);
      layer.values.narrow(2, longest, 1).copy_(v);
    } else {
      using torch::indexing::Slice;
      layer.keys.index_put_({each, Slice(), positions}, k.squeeze(2));
      layer.values.index_put_({each, Slice(), positions}, v.squeeze(2));
    }
    return at::scaled_dot_product_attention(
        split_heads(parts[0]), layer.keys.narrow(2, 0, longest + 1),
        layer.values.narrow(2, 0, longest + 1),
        mask.defined() ? std::optional(mask) : std::nullopt);
  });
  return compute_logits(out.squeeze(1));
}

void Decoder::keep(const std::vector<std::int64_t>& rows) {
  held_.reset();
  std::vector<std::int64_t> lengths;
  for (const auto row : rows) lengths.push_back(length(row));
  lengths_ = std::move(lengths);
  const auto kept = torch::tensor(rows).to(device());
  for (auto& layer : layers_) {
    layer.keys = layer.keys.index_select(0, kept);
    layer.values = layer.values.index_select(0, kept);
  }
}

}  // namespace lockstep::generate
