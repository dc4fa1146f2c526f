#include "lockstep/models/gpt_places.h"

#include "lockstep/base/str.h"

namespace lockstep::models {
namespace {

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

GptPlaces::GptPlaces(const Sizes& sizes, std::int64_t tokens) {
  const auto num_layers = static_cast<int>(sizes.layers);
  const auto hidden = sizes.hidden;
  const Moments moments{num_layers};
  const auto add = [&](std::string name, std::int64_t columns, int first, int last) {
    return arena.add({std::move(name), tokens * columns * sizes.element, first, last});
  };
  embedded = add("embeddings", hidden, 0, moments.attention_backward(0));
  for (int i = 0; i < num_layers; ++i) {
    const auto begin = moments.forward(i), mlp = moments.mlp_backward(i);
    const auto end = moments.attention_backward(i);
    const auto next = i + 1 < num_layers ? moments.attention_backward(i + 1)
                                         : moments.head_backward();
    const auto name = [&](const char* what) { return str("h.", i, ".", what); };
    layers.push_back({.ln_1 = add(name("ln_1"), hidden, begin, end),
                      .qkv = add(name("qkv"), 3 * hidden, begin, end),
                      .attention_sum = add(name("attention sum"), hidden, begin, mlp),
                      .ln_2 = add(name("ln_2"), hidden, begin, mlp),
                      .before_gelu = add(name("before gelu"), 4 * hidden, begin, mlp),
                      .gelu = add(name("gelu"), 4 * hidden, begin, mlp),
                      .sum = add(name("sum"), hidden, begin, next)});
  }
  const auto back = moments.head_backward();
  last_norm = add("ln_f", hidden, moments.head(), back);
  logits = add("logits", sizes.rows, moments.head(), back);
  residual = add("gradient by the sums", hidden, back, moments.end());
  small = add("gradient by a norm", hidden, back, moments.end());
  wide = add("gradient within a layer", 4 * hidden, back + 1, moments.end() - 1);
  arena.place();
}

std::int64_t gpt_pass_bytes(const GptPlaces::Sizes& sizes, std::int64_t tokens) {
  constexpr std::int64_t kFloat = 4, kIndex = 8;
  const auto norms = (2 * sizes.layers + 1) * 2 * kFloat;
  const auto attention =
      sizes.layers * (sizes.hidden * sizes.element + sizes.heads * kFloat);
  const auto order = 2 * kIndex;  // of the positions
  return GptPlaces(sizes, tokens).arena.bytes() +
         tokens * (norms + attention + order + kFloat);
}

}  // namespace lockstep::models
