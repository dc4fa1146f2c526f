#include "lockstep/optim/optimizer.h"

#include "lockstep/checkpoint/safetensors.h"
#include "tests/support/oracle.h"

namespace lockstep::optim {
namespace {

struct Case {
  std::string name;
  config::OptimConfig config;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class OptimizerContract : public testing::TestWithParam<Case> {};

// Parameters and gradients of very different sizes, so that no term hides another.
std::vector<torch::Tensor> some_gradients(int steps) {
  torch::manual_seed(5);
  std::vector<torch::Tensor> gradients;
  for (int i = 0; i < steps; ++i) {
    gradients.push_back(torch::randn({1000}) * torch::logspace(-4, 1, 1000));
  }
  return gradients;
}

TEST_P(OptimizerContract, EqualsPyTorchAfterTwentySteps) {
  LOCKSTEP_NEEDS_ORACLE();
  const auto gradients = some_gradients(20);
  auto values = torch::linspace(-2, 2, 1000);
  checkpoint::NamedTensors tensors{{"start", values.clone()},
                                   {"gradients", torch::stack(gradients)}};
  const auto optimizer = make_optimizer(GetParam().config, values);
  for (int i = 0; i < 20; ++i) {
    auto gradient = gradients[static_cast<std::size_t>(i)].clone();
    optimizer->step(values, gradient, GetParam().config.lr * (1 - 0.03 * i));
  }
  tensors.emplace_back("end", values);
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "optim.safetensors";
  checkpoint::write_safetensors(file, tensors);
  const auto& c = GetParam().config;
  test::expect_oracle_agrees(
      "optim.py", {file.string(), std::string(config::name_of(c.name)), str(c.lr),
                   str(c.weight_decay), str(c.momentum), str(c.nesterov ? 1 : 0)});
}

// The fused operations round differently in a tail that does not fill a vector
// register: slices are cut at multiples of 16 elements, as FlatParameters aligns them.
TEST_P(OptimizerContract, IsTheSameOverAlignedSlicesOfTheBuffer) {
  torch::manual_seed(5);
  auto whole = torch::linspace(-2, 2, 1008);
  auto parts = whole.clone();
  const auto on_whole = make_optimizer(GetParam().config, whole);
  auto head = parts.narrow(0, 0, 336);
  auto tail = parts.narrow(0, 336, 672);
  const auto on_head = make_optimizer(GetParam().config, head);
  const auto on_tail = make_optimizer(GetParam().config, tail);
  for (int i = 0; i < 5; ++i) {
    auto gradient = torch::randn({1008});
    auto head_gradient = gradient.narrow(0, 0, 336);
    auto tail_gradient = gradient.narrow(0, 336, 672);
    on_whole->step(whole, gradient, 0.01);
    on_head->step(head, head_gradient, 0.01);
    on_tail->step(tail, tail_gradient, 0.01);
  }
  EXPECT_TRUE(whole.equal(parts));
}

TEST_P(OptimizerContract, ZeroGradientsWithoutDecayChangeNothing) {
  auto config = GetParam().config;
  config.weight_decay = 0;
  auto values = torch::linspace(-2, 2, 1000);
  const auto before = values.clone();
  auto gradient = torch::zeros({1000});
  const auto optimizer = make_optimizer(config, values);
  for (int i = 0; i < 3; ++i) optimizer->step(values, gradient, 0.1);
  EXPECT_TRUE(values.equal(before));
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, OptimizerContract,
    testing::Values(
        Case{"adamw",
             {.name = config::Optimizer::adamw, .lr = 0.01, .weight_decay = 0.1}},
        Case{"sgd", {.name = config::Optimizer::sgd, .lr = 0.01, .weight_decay = 0.1}},
        Case{"nesterov",
             {.name = config::Optimizer::sgd,
              .lr = 0.01,
              .weight_decay = 0.1,
              .nesterov = true}},
        Case{"plain_sgd",
             {.name = config::Optimizer::sgd,
              .lr = 0.01,
              .weight_decay = 0,
              .momentum = 0}}),
    [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace lockstep::optim
