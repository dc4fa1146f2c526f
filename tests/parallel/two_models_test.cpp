// Two models in one loop, the backward pass of one of which goes through the other.
#include <memory>

#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/update.h"
#include "tests/parallel/counting.h"
#include "tests/parallel/odd_net.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t kNoise = 4, kDrawn = 6;
constexpr double kPlayersRate = 0.01;

// A model of a game, with what trains it. Its collectives are counted.
struct CountedPlayer {
  CountedPlayer(Communicator& c, std::int64_t in, std::int64_t out)
      : net(in, out),
        calls(std::make_shared<int>(0)),
        counting(c, calls),
        engine(*with_values(net), {counting, counting}),
        optimizer(optim::make_optimizer({.lr = kPlayersRate}, engine.values(0))) {}

  // The same wherever it is made.
  static torch::nn::Linear& with_values(torch::nn::Linear& net) {
    auto generator = at::detail::createCPUGenerator(29);
    const torch::NoGradGuard no_grad;
    for (auto& p : net->parameters()) p.uniform_(-0.5, 0.5, generator);
    return net;
  }

  void update() { parallel::update(engine, {*optimizer, {.lr = kPlayersRate}}); }

  torch::nn::Linear net;
  std::shared_ptr<int> calls;
  CountingCommunicator counting;
  Engine engine;
  std::unique_ptr<optim::Optimizer> optimizer;
};

// This rank's rows of what all ranks have drawn for a step.
Tensor drawn_for(const Communicator& c, int step, std::int64_t width, bool all) {
  constexpr std::int64_t kRowsOfAll = 12;
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step + 1));
  const auto rows = torch::empty({kRowsOfAll, width}).normal_(0, 1, generator);
  if (all) return rows;
  const auto [begin, end] = even_share(c, kRowsOfAll);
  return rows.narrow(0, begin, end - begin);
}

// A step of a critic by itself.
void train_critic(CountedPlayer& critic, const Communicator& c, int step) {
  critic.engine.zero_gradients();
  (critic.net->forward(drawn_for(c, step, kDrawn, false)).square().sum() / 12)
      .backward();
  critic.update();
}

Tensor score_of(CountedPlayer& generator, CountedPlayer& critic, const Tensor& noise) {
  return critic.net->forward(torch::tanh(generator.net->forward(noise))).sum() / 12;
}

}  // namespace

class TwoModels : public RanksTest {};

INSTANTIATE_TEST_SUITE_P(Ranks, TwoModels, ranks_that_sum_in_order(), name_of_ranks);

// As examples/gan.cpp has it.
TEST_P(TwoModels, GradientsUnderNoSyncNeitherTravelNorEnterTheOthersNextUpdate) {
  on_ranks([](Communicator& c) {
    CountedPlayer generator(c, kNoise, kDrawn);
    CountedPlayer critic(c, kDrawn, 1), alone(c, kDrawn, 1);
    for (int step = 0; step < 4; ++step) {
      train_critic(critic, c, step);
      train_critic(alone, c, step);
      // With what was held back in the step before, they would differ.
      ASSERT_TRUE(critic.net->weight.equal(alone.net->weight)) << "step " << step;
      ASSERT_TRUE(critic.net->bias.equal(alone.net->bias)) << "step " << step;

      const auto expected = torch::autograd::grad(
          {score_of(generator, critic, drawn_for(c, step, kNoise, true))},
          {generator.net->weight, generator.net->bias});
      const int critics_calls = *critic.calls, generators_calls = *generator.calls;
      generator.engine.zero_gradients();
      {
        const auto held = critic.engine.no_sync();
        score_of(generator, critic, drawn_for(c, step, kNoise, false)).backward();
      }
      EXPECT_EQ(*critic.calls, critics_calls) << "something has travelled";
      EXPECT_GT(critic.net->weight.grad().abs().max().item<double>(), 0)
          << "there was something to hold back";
      if (c.size() > 1) {
        EXPECT_GT(*generator.calls, generators_calls);
      }
      // Sums of a dozen terms in another order.
      EXPECT_TRUE(generator.net->weight.grad().allclose(expected[0], 1e-5, 1e-6));
      EXPECT_TRUE(generator.net->bias.grad().allclose(expected[1], 1e-5, 1e-6));
      generator.update();
    }
  });
}

}  // namespace lockstep::test
