#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/models/model.h"
#include "tests/support/oracle.h"

namespace lockstep::models {
namespace {

// The textbook order: relu before the pool.
torch::Tensor relu_then_pool(const torch::nn::Module& model,
                             const torch::Tensor& input) {
  const auto p = model.named_parameters();
  auto x = torch::max_pool2d(
      torch::conv2d(input, p["conv1.weight"], p["conv1.bias"], 1, 1).relu(), 2);
  x = torch::max_pool2d(
      torch::conv2d(x, p["conv2.weight"], p["conv2.bias"], 1, 1).relu(), 2);
  x = torch::linear(x.flatten(1), p["hidden.weight"], p["hidden.bias"]).relu();
  return torch::linear(x, p["output.weight"], p["output.bias"]);
}

TEST(Cnn, PoolingBeforeReluChangesNeitherValuesNorGradients) {
  torch::manual_seed(1);
  const auto model = build({.name = "cnn"}, {{1, 28, 28}, 10});
  const auto x = torch::randn({6, 1, 28, 28});
  const auto weights = torch::randn({6, 10});
  const auto ours = model->forward(x);
  const auto theirs = relu_then_pool(*model, x);
  EXPECT_TRUE(ours.equal(theirs));
  const auto parameters = model->parameters();
  const auto our_gradients =
      torch::autograd::grad({(ours * weights).sum()}, parameters);
  const auto their_gradients =
      torch::autograd::grad({(theirs * weights).sum()}, parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(our_gradients[i].equal(their_gradients[i])) << i;
  }
}

TEST(Cnn, LayoutDoesNotChangeTheResultBeyondRounding) {
  torch::manual_seed(1);
  const auto model = build({.name = "cnn"}, {{3, 32, 20}, 5});
  const auto x = torch::randn({4, 3, 32, 20});
  const auto expected = model->forward(x);
  for (auto& parameter : model->parameters()) {
    if (parameter.dim() == 4) {
      parameter.set_data(
          parameter.detach().contiguous(torch::MemoryFormat::ChannelsLast));
    }
  }
  const auto got = model->forward(x.contiguous(torch::MemoryFormat::ChannelsLast));
  // Sums over at most 320 products of size about one, in another order.
  EXPECT_TRUE(got.allclose(expected, 1e-4, 1e-5));
}

TEST(Cnn, EqualsPyTorchInValueAndGradient) {
  LOCKSTEP_NEEDS_ORACLE();
  torch::manual_seed(2);
  const auto model = build({.name = "cnn"}, {{1, 28, 28}, 10});
  const auto x = torch::randn({8, 1, 28, 28});
  const auto y = torch::randint(10, {8});
  const auto logits = model->forward(x);
  torch::cross_entropy_loss(logits, y).backward();
  auto tensors = checkpoint::state_of(*model);
  for (const auto& item : model->named_parameters()) {
    tensors.emplace_back("grad." + item.key(), item.value().grad());
  }
  tensors.emplace_back("x", x);
  tensors.emplace_back("y", y);
  tensors.emplace_back("logits", logits);
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "cnn.safetensors";
  checkpoint::write_safetensors(file, tensors);
  test::expect_oracle_agrees("cnn.py", {file.string()});
}

}  // namespace
}  // namespace lockstep::models
