// A multi-layer perceptron over flattened samples of any shape. Its backward pass is
// written out, too: the plainest example of one.
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/models/dropout.h"
#include "lockstep/models/model.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

class Mlp : public Model, public OwnBackward {
 public:
  Mlp(const config::ModelConfig& config, const Shape& shape)
      : dropout_(config.dropout),
        writes_backward_(config.own_backward.value_or(false)) {
    std::int64_t width = 1;
    for (const auto size : shape.input) width *= size;
    for (std::int64_t i = 0; i < config.layers; ++i) {
      hidden_.push_back(
          register_module(str("hidden", i + 1), nn::Linear(width, config.hidden)));
      width = config.hidden;
    }
    output_ = register_module("output", nn::Linear(width, shape.num_outputs()));
    register_module("dropout", dropout_);
  }

  Tensor forward(const Tensor& input) override {
    auto x = input.flatten(1);  // (B, features)
    for (auto& layer : hidden_) x = dropout_(layer(x).relu_());
    return output_(x);
  }

  OwnBackward* own_backward() noexcept override {
    return writes_backward_ ? this : nullptr;
  }

  Named forward_kept(const Named& inputs) override {
    kept_ = {inputs.at("input").flatten(1)};
    for (auto& layer : hidden_) kept_.push_back(layer(kept_.back()).relu_());
    return {{"output", output_(kept_.back())}};
  }

  void backward(const Named& gradients, GradientSink& sink) override {
    auto gradient = gradients.at("output");  // (B, classes)
    add_gradients(*output_, {kept_[hidden_.size()], gradient}, sink);
    auto* above = &output_;
    for (auto i = hidden_.size(); i-- > 0;) {
      gradient = gradient.mm((*above)->weight);
      gradient = at::threshold_backward(gradient, kept_[i + 1], 0);
      add_gradients(*hidden_[i], {kept_[i], gradient}, sink);
      above = &hidden_[i];
    }
    kept_.clear();
  }

 private:
  struct LayerPass {
    const Tensor& input;
    const Tensor& gradient;  // of the output
  };
  static void add_gradients(const nn::LinearImpl& layer, const LayerPass& pass,
                            GradientSink& sink) {
    const auto& [input, gradient] = pass;
    if (auto bias = sink.destination_of(layer.bias); bias.memory.defined()) {
      if (bias.adds) {
        bias.memory.add_(gradient.sum(0));
      } else {
        at::sum_out(bias.memory, gradient, 0);
      }
      sink.ready(layer.bias);
    }
    if (auto weight = sink.destination_of(layer.weight); weight.memory.defined()) {
      if (weight.adds) {
        weight.memory.addmm_(gradient.t(), input);
      } else {
        at::mm_out(weight.memory, gradient.t(), input);
      }
      sink.ready(layer.weight);
    }
  }

  std::vector<nn::Linear> hidden_;
  Dropout dropout_;
  nn::Linear output_{nullptr};
  const bool writes_backward_;
  std::vector<Tensor> kept_;  // the input, then the output of each hidden layer
};

}  // namespace

std::shared_ptr<Model> make_mlp(const config::ModelConfig& config, const Shape& shape) {
  if (config.own_backward.value_or(false) && config.dropout > 0) {
    throw Error(Fault::config,
                "model.own_backward: the mlp's has no dropout, but "
                "model.dropout is ",
                config.dropout, "; set one of them to its default");
  }
  return std::make_shared<Mlp>(config, shape);
}

}  // namespace lockstep::models
