#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/models/arena.h"

namespace lockstep::models {

// Where activations, and the gradients by them, lie in the one piece of memory of a
// GptPass. Needs no memory itself, so it says what a pass would take.
struct GptPlaces {
  struct Sizes {
    std::int64_t layers = 0, hidden = 0, heads = 0;
    std::int64_t rows = 0;     // of the embedding
    std::int64_t element = 4;  // bytes of a parameter
  };
  struct Layer {
    std::size_t ln_1, qkv, attention_sum, ln_2, before_gelu, gelu, sum;
  };

  GptPlaces(const Sizes& sizes, std::int64_t tokens);

  Arena arena;
  std::vector<Layer> layers;
  std::size_t embedded = 0, last_norm = 0, logits = 0;
  std::size_t residual = 0, small = 0, wide = 0;  // gradients of activations
};

// Returns the bytes that passes over so many tokens take beside parameters and their
// gradients: activations, the statistics of norms and of attention, losses. Workspaces
// of libraries on a GPU are not counted.
std::int64_t gpt_pass_bytes(const GptPlaces::Sizes& sizes, std::int64_t tokens);

}  // namespace lockstep::models
