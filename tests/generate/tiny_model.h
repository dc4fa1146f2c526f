#pragma once

#include "lockstep/generate/decoder.h"
#include "lockstep/models/model.h"

namespace lockstep::test {

// A gpt with random weights that are large enough for its answers to differ, over bytes
// and the end of a text.
inline std::shared_ptr<models::Model> tiny_gpt(std::int64_t context = 64) {
  torch::manual_seed(11);
  auto model = models::build({.name = "gpt", .hidden = 32, .layers = 2, .heads = 4},
                             {.input = {context}, .num_classes = 257});
  const torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) {
    if (parameter.dim() == 2) parameter.mul_(8);
  }
  model->eval();
  return model;
}

inline generate::GptWeights weights_of(const models::Model& model) {
  generate::GptWeights weights{.heads = 4};
  for (const auto& item : model.named_parameters()) {
    weights.tensors[item.key()] = item.value().detach();
  }
  return weights;
}

}  // namespace lockstep::test
