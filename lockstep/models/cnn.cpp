// A small convolutional network for small images: two 3x3 convolutions, each followed
// by a 2x2 max pool, and two linear layers.
#include "lockstep/base/error.h"
#include "lockstep/models/detail/max_pool.h"
#include "lockstep/models/dropout.h"
#include "lockstep/models/model.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kFirst = 32;
constexpr std::int64_t kSecond = 64;

nn::Conv2d conv3x3(std::int64_t in, std::int64_t out) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1));
}

class Cnn : public Model {
 public:
  Cnn(const config::ModelConfig& config, const Shape& shape)
      : conv1_(register_module("conv1", conv3x3(shape.input[0], kFirst))),
        conv2_(register_module("conv2", conv3x3(kFirst, kSecond))),
        hidden_(register_module(
            "hidden", nn::Linear(kSecond * (shape.input[1] / 4) * (shape.input[2] / 4),
                                 config.hidden))),
        dropout_(register_module("dropout", Dropout(config.dropout))),
        output_(register_module("output",
                                nn::Linear(config.hidden, shape.num_outputs()))) {}

  // B batch, C channels, H height, W width
  torch::Tensor forward(const torch::Tensor& input) override {
    // max and relu commute, in value and in gradient: pooling first leaves relu a
    // quarter of the elements.
    auto x = max_pool(conv1_(input), {2, 2}).relu_();  // (B, 32, H/2, W/2)
    x = max_pool(conv2_(x), {2, 2}).relu_();           // (B, 64, H/4, W/4)
    x = hidden_(x.flatten(1)).relu_();                 // (B, hidden)
    return output_(dropout_(x));
  }

  torch::MemoryFormat memory_format() const override {
    return torch::MemoryFormat::ChannelsLast;
  }

 private:
  nn::Conv2d conv1_, conv2_;
  nn::Linear hidden_;
  Dropout dropout_;
  nn::Linear output_;
};

}  // namespace

std::shared_ptr<Model> make_cnn(const config::ModelConfig& config, const Shape& shape) {
  if (shape.input.size() != 3 || shape.input[1] < 4 || shape.input[2] < 4) {
    throw Error(Fault::config,
                "model.name: cnn takes images (channels, height, width) of at "
                "least 4 x 4 pixels, the data set's samples have shape ",
                c10::IntArrayRef(shape.input), "; choose model.name=mlp");
  }
  return std::make_shared<Cnn>(config, shape);
}

}  // namespace lockstep::models
