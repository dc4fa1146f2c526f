// A multi-layer perceptron over flattened samples of any shape.
#include "lockstep/base/str.h"
#include "lockstep/models/dropout.h"
#include "lockstep/models/model.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

class Mlp : public Model {
 public:
  Mlp(const config::ModelConfig& config, const Shape& shape)
      : dropout_(config.dropout) {
    std::int64_t width = 1;
    for (const auto size : shape.input) width *= size;
    for (std::int64_t i = 0; i < config.layers; ++i) {
      hidden_.push_back(
          register_module(str("hidden", i + 1), nn::Linear(width, config.hidden)));
      width = config.hidden;
    }
    output_ = register_module("output", nn::Linear(width, shape.num_classes));
    register_module("dropout", dropout_);
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    auto x = input.flatten(1);  // (B, features)
    for (auto& layer : hidden_) x = dropout_(layer(x).relu_());
    return output_(x);
  }

 private:
  std::vector<nn::Linear> hidden_;
  Dropout dropout_;
  nn::Linear output_{nullptr};
};

}  // namespace

std::shared_ptr<Model> make_mlp(const config::ModelConfig& config, const Shape& shape) {
  return std::make_shared<Mlp>(config, shape);
}

}  // namespace lockstep::models
