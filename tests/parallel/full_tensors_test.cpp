// Whole values, gradients and optimizer states by name, to look at and to set.
#include "lockstep/parallel/full_tensors.h"

#include "lockstep/parallel/detail/replicated_tensors.h"
#include "tests/parallel/unit_rig.h"

namespace lockstep::test::units {

using ::testing::HasSubstr;

namespace {

struct PairImpl : torch::nn::Module {
  PairImpl() {
    one = register_module("one", torch::nn::Linear(kIn, kWide));
    two = register_module("two", torch::nn::Linear(kWide, kOut));
    turned = register_parameter("turned", torch::randn({kWide, kWide}).t());
  }
  Tensor forward(const Tensor& x, Engine* engine) {
    const auto h = engine->run_unit(
        0, [&](const Tensor& in) { return torch::tanh(one->forward(in)); }, x);
    return engine->run_unit(
        1, [&](const Tensor& in) { return two->forward(in); }, torch::mm(h, turned));
  }
  std::vector<const torch::nn::Module*> units() const { return {&*one, &*two}; }
  torch::nn::Linear one{nullptr}, two{nullptr};
  Tensor turned;
};
TORCH_MODULE(Pair);

using TrainedPair = TrainedNet<Pair>;

}  // namespace

class FullTensors : public RanksTest {};

INSTANTIATE_TEST_SUITE_P(Ranks, FullTensors,
                         ::testing::Values(std::tuple(Rig::local, 1),
                                           std::tuple(Rig::local, 3),
                                           std::tuple(Rig::gloo_processes, 2),
                                           std::tuple(Rig::shm_processes, 2)),
                         name_of_ranks);

// What stage 0 has as a whole anyway is the oracle of the others.
TEST_P(FullTensors, AreTheSameAtEveryStage) {
  const auto x = make_inputs(11);
  on_ranks([&](Communicator& c) {
    TrainedPair plain(c, 0);
    parallel::detail::ReplicatedTensors expected(plain.engine, plain.optimizers);
    for (int step = 0; step < 2; ++step) plain.step(share(c, x));
    for (const int stage : {1, 2, 3}) {
      TrainedPair sharded(c, stage);
      parallel::detail::ReplicatedTensors full(sharded.engine, sharded.optimizers);
      for (int step = 0; step < 2; ++step) sharded.step(share(c, x));
      for (const auto& parameter : plain.engine.parameters()) {
        const auto& name = parameter.name;
        EXPECT_TRUE(torch::equal(full.parameter(name), parameter.tensor)) << name;
        EXPECT_TRUE(torch::equal(full.gradient(name), parameter.tensor.grad()))
            << name << " at stage " << stage;
        const auto states = full.optimizer_state(name);
        const auto theirs = expected.optimizer_state(name);
        ASSERT_EQ(states.size(), theirs.size());
        for (const auto& [state, tensor] : states) {
          EXPECT_TRUE(torch::equal(tensor, theirs.at(state))) << name << " " << state;
        }
        EXPECT_TRUE(states.contains("mean"));
      }
    }
  });
}

TEST_P(FullTensors, WhatIsSetIsUsedByTheNextSteps) {
  const auto x = make_inputs(11);
  const auto value = torch::randn({kWide, kWide}, at::detail::createCPUGenerator(9));
  on_ranks([&](Communicator& c) {
    std::map<std::string, Tensor> expected;
    for (const int stage : {0, 1, 2, 3}) {
      TrainedPair one(c, stage);
      parallel::detail::ReplicatedTensors full(one.engine, one.optimizers);
      one.step(share(c, x));
      full.set_parameter("turned", value);
      full.set_optimizer_state("turned", "mean", value.t() * 0.01);
      EXPECT_TRUE(torch::equal(full.parameter("turned"), value)) << stage;
      EXPECT_TRUE(
          torch::equal(full.optimizer_state("turned").at("mean"), value.t() * 0.01));
      one.engine.zero_gradients();
      one.loss(share(c, x)).backward();
      one.engine.finish();
      full.set_gradient("two.bias", torch::ones({kOut}));
      one.optimizers.step({.lr = 0.01});
      if (stage == 0) expected = one.parameters();
      for (const auto& [name, tensor] : one.parameters()) {
        EXPECT_TRUE(torch::equal(tensor, expected.at(name))) << name << " " << stage;
      }
    }
  });
}

TEST_P(FullTensors, MistakesAreNamed) {
  on_ranks([](Communicator& c) {
    TrainedPair one(c, 3);
    parallel::detail::ReplicatedTensors full(one.engine, one.optimizers);
    EXPECT_THAT(error_text(Fault::config, [&] { full.parameter("one.wieght"); }),
                HasSubstr("did you mean 'one.weight'"));
    EXPECT_THAT(error_text(Fault::config,
                           [&] { full.set_parameter("turned", torch::ones({2})); }),
                HasSubstr("[2], but it has [7, 7]"));
    EXPECT_THAT(error_text(Fault::config,
                           [&] {
                             full.set_optimizer_state("turned", "momentum",
                                                      torch::ones({kWide, kWide}));
                           }),
                HasSubstr("it has "));
  });
}

}  // namespace lockstep::test::units
