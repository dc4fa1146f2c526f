// Residual networks: resnet18, resnet34 and resnet50 with the layers and the names that
// torchvision gives them, so that weights can be exchanged, and the small resnet9 for
// small images.
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/models/add_relu.h"
#include "lockstep/models/detail/max_pool.h"
#include "lockstep/models/dropout.h"
#include "lockstep/models/model.h"

namespace lockstep::models {
namespace {

namespace nn = torch::nn;

// Below this a stem that reduces the image to a quarter would leave nothing to see.
constexpr std::int64_t kSmallImage = 65;

struct ConvKernel {
  std::int64_t size;
  std::int64_t stride = 1;
};

nn::Conv2d conv(std::int64_t in, std::int64_t out, const ConvKernel& kernel) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, kernel.size)
                        .stride(kernel.stride)
                        .padding(kernel.size / 2)
                        .bias(false));
}

// Draws He's initial values for layers that are followed by relu.
void initialize(nn::Module& module) {
  for (const auto& child : module.modules(/*include_self=*/false)) {
    if (auto* layer = child->as<nn::Conv2d>()) {
      nn::init::kaiming_normal_(layer->weight, 0, torch::kFanOut, torch::kReLU);
    }
  }
}

struct Widths {
  std::int64_t in, middle, out;
};

// Two 3x3 convolutions, or 1x1, 3x3 and 1x1 (a bottleneck), beside a shortcut.
class ResidualBlock : public nn::Module {
 public:
  ResidualBlock(const Widths& widths, std::int64_t stride, bool bottleneck)
      : bottleneck_(bottleneck) {
    const auto [in, middle, out] = widths;
    conv1_ = register_module(
        "conv1", bottleneck ? conv(in, middle, {1}) : conv(in, middle, {3, stride}));
    bn1_ = register_module("bn1", nn::BatchNorm2d(middle));
    conv2_ = register_module("conv2", bottleneck ? conv(middle, middle, {3, stride})
                                                 : conv(middle, out, {3}));
    bn2_ = register_module("bn2", nn::BatchNorm2d(bottleneck ? middle : out));
    if (bottleneck) {
      conv3_ = register_module("conv3", conv(middle, out, {1}));
      bn3_ = register_module("bn3", nn::BatchNorm2d(out));
    }
    if (stride != 1 || in != out) {
      shortcut_ = register_module(
          "downsample",
          nn::Sequential(conv(in, out, {1, stride}), nn::BatchNorm2d(out)));
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    auto y = bn2_(conv2_(bn1_(conv1_(x)).relu_()));
    if (bottleneck_) y = bn3_(conv3_(y.relu_()));
    return add_relu(y, shortcut_ ? shortcut_->forward(x) : x);
  }

 private:
  const bool bottleneck_;
  nn::Conv2d conv1_{nullptr}, conv2_{nullptr}, conv3_{nullptr};
  nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr}, bn3_{nullptr};
  nn::Sequential shortcut_{nullptr};
};

struct BlockCounts {
  std::array<int, 4> blocks;  // of each stage
  bool bottleneck;
};

class ResNet : public Model {
 public:
  ResNet(const BlockCounts& depth, const Shape& shape)
      : small_(std::min(shape.input[1], shape.input[2]) < kSmallImage) {
    constexpr std::int64_t kStem = 64;
    conv1_ = register_module("conv1", small_ ? conv(shape.input[0], kStem, {3})
                                             : conv(shape.input[0], kStem, {7, 2}));
    bn1_ = register_module("bn1", nn::BatchNorm2d(kStem));
    auto in = kStem;
    for (std::size_t stage = 0; stage < 4; ++stage) {
      const std::int64_t middle = kStem << stage;
      const auto out = depth.bottleneck ? 4 * middle : middle;
      nn::ModuleList list;
      for (int i = 0; i < depth.blocks[stage]; ++i) {
        const std::int64_t stride = i == 0 && stage > 0 ? 2 : 1;
        auto block = std::make_shared<ResidualBlock>(Widths{in, middle, out}, stride,
                                                     depth.bottleneck);
        list->push_back(block);
        add_block(block, [raw = block.get()](const torch::Tensor& x) {
          return raw->forward(x);
        });
        in = out;
      }
      register_module("layer" + std::to_string(stage + 1), list);
    }
    fc_ = register_module("fc", nn::Linear(in, shape.num_outputs()));
    initialize(*this);
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    auto x = bn1_(conv1_(input)).relu_();
    if (!small_) x = max_pool(x, {3, 2, 1});
    x = run_blocks(x);
    return fc_(x.mean({2, 3}));
  }

  torch::MemoryFormat memory_format() const override {
    return torch::MemoryFormat::ChannelsLast;
  }

 private:
  const bool small_;
  nn::Conv2d conv1_{nullptr};
  nn::BatchNorm2d bn1_{nullptr};
  nn::Linear fc_{nullptr};
};

// A 3x3 convolution with normalisation, and a 2x2 pool if asked for.
class Layer : public nn::Module {
 public:
  Layer(std::int64_t in, std::int64_t out, bool pools) : pools_(pools) {
    conv_ = register_module("conv", conv(in, out, {3}));
    norm_ = register_module("norm", nn::BatchNorm2d(out));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    auto y = norm_(conv_(x));
    if (pools_) y = max_pool(y, {2, 2});  // relu of the maximum is the same
    return y.relu_();
  }

 private:
  const bool pools_;
  nn::Conv2d conv_{nullptr};
  nn::BatchNorm2d norm_{nullptr};
};

// Two layers beside a shortcut that is nothing but the input.
class Residual : public nn::Module {
 public:
  explicit Residual(std::int64_t width) {
    first_ = register_module("first", std::make_shared<Layer>(width, width, false));
    second_ = register_module("second", std::make_shared<Layer>(width, width, false));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x + second_->forward(first_->forward(x));
  }

 private:
  std::shared_ptr<Layer> first_, second_;
};

class ResNet9 : public Model {
 public:
  ResNet9(const config::ModelConfig& config, const Shape& shape) {
    add("prepare", std::make_shared<Layer>(shape.input[0], 64, false));
    add("layer1", std::make_shared<Layer>(64, 128, true));
    add("residual1", std::make_shared<Residual>(128));
    add("layer2", std::make_shared<Layer>(128, 256, true));
    add("layer3", std::make_shared<Layer>(256, 512, true));
    add("residual3", std::make_shared<Residual>(512));
    dropout_ = register_module("dropout", Dropout(config.dropout));
    output_ = register_module("output", nn::Linear(512, shape.num_outputs()));
    initialize(*this);
  }

  torch::Tensor forward(const torch::Tensor& input) override {
    return output_(dropout_(run_blocks(input).amax({2, 3})));
  }

  torch::MemoryFormat memory_format() const override {
    return torch::MemoryFormat::ChannelsLast;
  }

 private:
  template <typename Part>
  void add(const std::string& name, const std::shared_ptr<Part>& part) {
    register_module(name, part);
    add_block(part,
              [raw = part.get()](const torch::Tensor& x) { return raw->forward(x); });
  }

  Dropout dropout_{nullptr};
  nn::Linear output_{nullptr};
};

void check_image(const std::string& name, const Shape& shape) {
  if (shape.input.size() == 3 && shape.input[1] >= 8 && shape.input[2] >= 8) return;
  throw Error(Fault::config, "model.name: ", name,
              " takes images (channels, height, width) of at least 8 x 8 pixels, the "
              "data set's samples have shape ",
              c10::IntArrayRef(shape.input), "; choose model.name=mlp");
}

std::shared_ptr<Model> make_deep(const config::ModelConfig& config, const Shape& shape,
                                 const BlockCounts& depth) {
  check_image(config.name, shape);
  return std::make_shared<ResNet>(depth, shape);
}

}  // namespace

std::shared_ptr<Model> make_resnet9(const config::ModelConfig& config,
                                    const Shape& shape) {
  check_image(config.name, shape);
  return std::make_shared<ResNet9>(config, shape);
}

std::shared_ptr<Model> make_resnet18(const config::ModelConfig& config,
                                     const Shape& shape) {
  return make_deep(config, shape, {{2, 2, 2, 2}, false});
}

std::shared_ptr<Model> make_resnet34(const config::ModelConfig& config,
                                     const Shape& shape) {
  return make_deep(config, shape, {{3, 4, 6, 3}, false});
}

std::shared_ptr<Model> make_resnet50(const config::ModelConfig& config,
                                     const Shape& shape) {
  return make_deep(config, shape, {{3, 4, 6, 3}, true});
}

}  // namespace lockstep::models
