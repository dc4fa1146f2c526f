// Fifty steps at every stage: what a rank holds is no part of what is computed.
#include <array>
#include <limits>
#include <memory>

#include "lockstep/precision/loss_scaler.h"
#include "lockstep/precision/policy.h"
#include "tests/parallel/stack_net.h"

namespace lockstep::test::units {
namespace {

constexpr int kSteps = 50;

// The stack with parameters of 16 bits; its output is float32, as a loss wants it.
template <config::Precision kMode>
struct HalfStackImpl : StackImpl {
  HalfStackImpl() { to(precision::Policy{kMode, torch::kCPU}.dtype()); }
  Tensor forward(const Tensor& x, Engine* engine, const StackPass& how = {}) {
    return StackImpl::forward(x.to(tied.scalar_type()), engine, how)
        .to(torch::kFloat32);
  }
};
using Bf16StackImpl = HalfStackImpl<config::Precision::bf16_params>;
using Fp16StackImpl = HalfStackImpl<config::Precision::fp16_params>;
TORCH_MODULE(Bf16Stack);
TORCH_MODULE(Fp16Stack);

// How the steps of a net are made.
struct Manner {
  bool recomputes = false;
  std::int64_t passes = 1;  // of a step
  config::Precision mode = config::Precision::fp32;
};

config::PrecisionConfig scaling(config::Precision mode) {
  config::PrecisionConfig config;
  config.mode = mode;
  config.initial_scale = 1 << 22;  // the first ones overflow
  config.growth_interval = 5;
  return config;
}

void set_matrix_options(EngineOptions& options) {
  options.deterministic = true;
  options.waits_in_backward = false;
}

template <typename Net>
struct Stepped : TrainedNet<Net> {
  Stepped(Communicator& c, int stage, const Manner& its_manner)
      : TrainedNet<Net>(c, stage, set_matrix_options),
        communicator(c),
        manner(its_manner),
        scaler(scaling(its_manner.mode)) {}

  void pass(const Tensor& x, double scale) {
    (this->loss(x, StackPass{.recomputes = manner.recomputes}) * scale).backward();
  }

  // Rank 1's loss is not finite in step 7: no rank makes that one.
  double scale_in(int step) const {
    const bool bad = scaler.active() && step == 7 && communicator.rank() == 1;
    return bad ? std::numeric_limits<double>::infinity() : scaler.scale();
  }

  void step(int number, const Tensor& x) {
    auto& ranks = this->engine;
    const auto own = share(communicator, x);
    ranks.zero_gradients(ranks.sums_every_pass() ? manner.passes : 1);
    for (std::int64_t p = 0; p < manner.passes; ++p) {
      const auto begin = own.size(0) * p / manner.passes;
      const auto end = own.size(0) * (p + 1) / manner.passes;
      const auto part = own.narrow(0, begin, end - begin);
      ranks.end_pass();
      std::optional<Engine::NoSync> later;
      if (p + 1 < manner.passes && !ranks.sums_every_pass()) later.emplace(ranks);
      pass(part, scale_in(number));
    }
    ranks.finish();
    const auto done = this->optimizers.step(
        {.lr = 0.01, .loss_scale = scaler.scale(), .skips_nonfinite = scaler.active()});
    EXPECT_TRUE(number != 7 || !scaler.active() || done.skipped);
    scaler.update(done.skipped);
  }

  std::map<std::string, Tensor> after_all_steps(const Tensor& x) {
    for (int number = 0; number < kSteps; ++number) {
      step(number, x.narrow(0, number % 3, x.size(0) - 3));
    }
    return this->parameters();
  }

  Communicator& communicator;
  const Manner manner;
  precision::LossScaler scaler;
};

template <typename Net>
std::map<std::string, Tensor> after_fifty(Communicator& c, int stage,
                                          const Manner& manner) {
  Stepped<Net> net(c, stage, manner);
  const auto before = net.parameters();
  const auto after = net.after_all_steps(make_inputs(19));
  const Tensor& first = before.at("tied");
  EXPECT_FALSE(after.at("tied").allclose(first, 0, 0.05)) << "nothing was learnt";
  if (net.scaler.active()) {
    EXPECT_GE(net.scaler.num_overflows(), 3) << "of the first scale and of rank 1";
    EXPECT_LE(net.scaler.num_overflows(), kSteps / 2);
  }
  return after;
}

void expect_all_equal(const std::map<std::string, Tensor>& some,
                      const std::map<std::string, Tensor>& others,
                      const std::string& when) {
  ASSERT_EQ(some.size(), others.size());
  for (const auto& [name, tensor] : some) {
    EXPECT_TRUE(torch::equal(tensor, others.at(name))) << name << " " << when;
  }
}

// Every stage, with and without recompute, has the bits of ddp.
template <typename Net>
void expect_stages_alike(Communicator& c, config::Precision mode) {
  std::map<std::string, Tensor> ddp;
  for (const bool recomputes : {false, true}) {
    for (const int stage : {0, 1, 2, 3}) {
      const auto end = after_fifty<Net>(c, stage, {recomputes, 1, mode});
      if (ddp.empty()) ddp = end;
      expect_all_equal(
          end, ddp,
          ::lockstep::str("at stage ", stage, recomputes ? ", computed again" : ""));
    }
  }
}

}  // namespace

class ZeroSteps : public RanksTest {};
INSTANTIATE_TEST_SUITE_P(Ranks, ZeroSteps,
                         ::testing::Combine(::testing::Values(Rig::local,
                                                              Rig::gloo_processes,
                                                              Rig::shm_processes),
                                            ::testing::Values(2, 3, 4)),
                         name_of_ranks);

TEST_P(ZeroSteps, HaveTheBitsOfDdpWithAndWithoutRecompute) {
  on_ranks(
      [](Communicator& c) { expect_stages_alike<Stack>(c, config::Precision::fp32); });
}

// Passes are summed one by one from stage 2 on, and together before it.
TEST_P(ZeroSteps, AccumulateAsDdpNearlyAndStage3AsStage2ToTheBit) {
  on_ranks([](Communicator& c) {
    std::array<std::map<std::string, Tensor>, 4> ends;
    for (const int stage : {0, 2, 3}) {
      ends[static_cast<std::size_t>(stage)] =
          after_fifty<Stack>(c, stage, {.passes = 2});
    }
    expect_all_equal(ends[3], ends[2], "at stages 2 and 3");
    for (const auto& [name, tensor] : ends[0]) {
      if (tensor.numel() == 0) continue;
      const auto off = (ends[2].at(name) - tensor).norm().item<double>();
      // A few units in the last place of 50 sums.
      EXPECT_LE(off, 1e-6 * tensor.norm().item<double>()) << name;
    }
  });
}

TEST_P(ZeroSteps, InBf16HaveTheBitsOfDdp) {
  on_ranks([](Communicator& c) {
    expect_stages_alike<Bf16Stack>(c, config::Precision::bf16_params);
  });
}

// With a loss scale that overflows, on all ranks and on one.
TEST_P(ZeroSteps, InFp16SkipTogetherAndHaveTheBitsOfDdp) {
  on_ranks([](Communicator& c) {
    expect_stages_alike<Fp16Stack>(c, config::Precision::fp16_params);
  });
}

}  // namespace lockstep::test::units
