#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/config/model.h"

namespace lockstep::models {

// What a model is built for.
struct Shape {
  std::vector<std::int64_t> input;  // of one sample: (C, H, W)
  std::int64_t num_classes = 0;
};

// A classifier. Knows nothing of ranks, devices or optimizers.
class Model : public torch::nn::Module {
 public:
  // (B, ...) -> logits (B, num_classes)
  virtual torch::Tensor forward(const torch::Tensor& input) = 0;

  // The layout in which parameters and inputs make this model fastest.
  virtual torch::MemoryFormat memory_format() const {
    return torch::MemoryFormat::Contiguous;
  }
};

// Builds the model that a recipe names; its initial values come from torch's default
// generator. Throws Fault::config for a name that does not exist or a shape that the
// model can not take.
std::shared_ptr<Model> build(const config::ModelConfig& config, const Shape& shape);

// The constructors behind build(): a new model is a new file, a line here and a line in
// registry.cpp.
std::shared_ptr<Model> make_cnn(const config::ModelConfig& config, const Shape& shape);
std::shared_ptr<Model> make_mlp(const config::ModelConfig& config, const Shape& shape);

}  // namespace lockstep::models
