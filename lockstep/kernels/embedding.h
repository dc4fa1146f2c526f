#pragma once

#include <cstdint>

#include "lockstep/kernels/dropout.h"

// Embeddings of tokens and of their positions. Numbers are f32 or bf16; sums are float.
namespace lockstep::kernels {

// out[i] = tokens_weight[tokens[i]] + positions_weight[positions[i]]
struct Embedding {
  void* out = nullptr;
  const std::int64_t* tokens = nullptr;
  const std::int64_t* positions = nullptr;  // null: i % length
  const void* tokens_weight = nullptr;
  const void* positions_weight = nullptr;
  Number number = Number::f32;
  std::int64_t count = 0;  // of tokens
  std::int64_t length = 1;
  std::int64_t width = 0;
};

// weight_gradient[k] = or += the sum of gradient[i] over all i with keys[i] == k, in
// the order of i: the same bits every time. Rows that no key names are left alone.
struct EmbeddingBackward {
  void* weight_gradient = nullptr;
  const void* gradient = nullptr;
  const std::int64_t* keys = nullptr;   // sorted
  const std::int64_t* order = nullptr;  // the i of each, rising among equal keys
  bool adds = false;
  Number number = Number::f32;
  std::int64_t count = 0;  // of keys
  std::int64_t width = 0;
};

void embedding_cpu(const Embedding& args);
void embedding_backward_cpu(const EmbeddingBackward& args);

}  // namespace lockstep::kernels
