// Stage 3: parameters are whole while their unit computes, and the result is that of
// ranks which have them all.
#include <filesystem>

#include "tests/parallel/stack_net.h"
#include "tests/parallel/unit_rig.h"

namespace lockstep::test::units {

using ::testing::HasSubstr;

using TrainedStack = TrainedNet<Stack>;

class Units : public RanksTest {};

INSTANTIATE_TEST_SUITE_P(Ranks, Units, ranks_that_sum_in_order(), name_of_ranks);

TEST_P(Units, HaveTheBitsOfWholeParameters) {
  const auto x = make_inputs(13);
  on_ranks([&](Communicator& c) {
    for (const bool recomputes : {false, true}) {
      TrainedStack whole(c, 0), sharded(c, 3);
      for (int step = 0; step < 5; ++step) {
        whole.step(share(c, x), StackPass{.recomputes = recomputes});
        sharded.step(share(c, x), StackPass{.recomputes = recomputes});
        expect_same(whole, sharded, ::lockstep::str("after step ", step));
      }
    }
  });
}

TEST_P(Units, GatheredAheadAndKeptInBetweenHaveTheSameBits) {
  const auto x = make_inputs(12);
  on_ranks([&](Communicator& c) {
    TrainedStack whole(c, 0);
    for (int step = 0; step < 3; ++step) whole.step(share(c, x));
    for (const std::size_t prefetch : {0, 1, 2, 9}) {
      for (const bool reshards : {true, false}) {
        TrainedStack sharded(c, 3, [&](EngineOptions& options) {
          options.prefetch_units = prefetch;
          options.reshard_after_forward = reshards;
          options.live_buckets = 1 + prefetch;
        });
        for (int step = 0; step < 3; ++step) sharded.step(share(c, x));
        expect_same(whole, sharded,
                    ::lockstep::str("with ", prefetch, " ahead, ", reshards));
      }
    }
  });
}

TEST_P(Units, ARankHasAShardAndOneUnitAtATime) {
  const auto x = make_inputs(12);
  on_ranks([&](Communicator& c) {
    if (c.size() == 1) return;
    TrainedStack sharded(c, 3,
                         [](EngineOptions& options) { options.prefetch_units = 0; });
    sharded.step(share(c, x));
    std::int64_t owned = 0, all = 0;
    for (std::size_t i = 0; i < sharded.engine.owned().size(); ++i) {
      owned += sharded.engine.owned_values(i).numel();
    }
    for (const auto& group : sharded.engine.layout()) all += group.numel;
    EXPECT_EQ(owned * c.size(), all);
    for (const auto& parameter : sharded.engine.parameters()) {
      EXPECT_EQ(parameter.tensor.storage().nbytes(), 0U) << parameter.name;
      EXPECT_FALSE(parameter.tensor.grad().defined()) << parameter.name;
    }
    // The root, a unit, and the last one until its backward pass: of four.
    EXPECT_LT(sharded.engine.peak_gathered_bytes(), all * 4 * 3 / 5);
    EXPECT_GT(sharded.engine.peak_gathered_bytes(), 0);
  });
}

TEST_P(Units, SmallOnesStayWholeForAPass) {
  const auto x = make_inputs(12);
  on_ranks([&](Communicator& c) {
    TrainedStack whole(c, 0);
    TrainedStack sharded(c, 3, [](EngineOptions& o) {
      o.persist_below = 1 << 20;
      o.prefetch_units = 0;
    });
    for (int step = 0; step < 3; ++step) {
      whole.step(share(c, x));
      sharded.step(share(c, x));
    }
    expect_same(whole, sharded, "at the end");
    // All of them are, at a time.
    std::int64_t all = 0;
    for (const auto& group : whole.engine.layout()) all += group.numel;
    const auto least = c.size() > 1 ? all * 4 : 0;  // a single rank gathers nothing
    EXPECT_GE(sharded.engine.peak_gathered_bytes(), least);
  });
}

namespace {

// Returns the most bytes that a rank had whole at a time in two steps.
std::int64_t peak_of(Communicator& c, const Tensor& x, const Change& change) {
  TrainedStack sharded(c, 3, change);
  for (int step = 0; step < 2; ++step) sharded.step(share(c, x));
  return sharded.engine.peak_gathered_bytes();
}

}  // namespace

TEST_P(Units, AsManyAreWholeAsAreGatheredAheadOrKept) {
  const auto x = make_inputs(12);
  on_ranks([&](Communicator& c) {
    if (c.size() == 1) return;
    const auto ahead = [&](std::size_t units) {
      return peak_of(c, x, [=](EngineOptions& o) { o.prefetch_units = units; });
    };
    const auto none = ahead(0), one = ahead(1), two = ahead(2);
    EXPECT_LT(none, one) << "nothing is gathered ahead";
    EXPECT_LT(one, two);
    const auto kept = peak_of(c, x, [](EngineOptions& o) {
      o.prefetch_units = 0;
      o.reshard_after_forward = false;
    });
    EXPECT_LT(none, kept) << "nothing is kept for the backward pass";
  });
}

TEST_P(Units, ARankWithoutSamplesTakesPartWithZeros) {
  const auto x = make_inputs(8);
  on_ranks([&](Communicator& c) {
    if (c.size() == 1) return;
    TrainedStack whole(c, 0), sharded(c, 3);
    for (int step = 0; step < 4; ++step) {
      const bool all_to_one = step % 2 == 0;
      const auto own = !all_to_one     ? share(c, x)
                       : c.rank() == 1 ? x
                                       : x.narrow(0, 0, 0);
      whole.step(own);
      sharded.step(own);
      expect_same(whole, sharded, ::lockstep::str("after step ", step));
    }
  });
}

TEST_P(Units, AUnitThatSomeRanksSkipIsTrainedByTheOthers) {
  const auto x = make_inputs(12);
  for (const std::size_t unit : {0, 2, 3}) {
    on_ranks([&](Communicator& c) {
      const auto find = [](EngineOptions& o) { o.find_unused_parameters = true; };
      TrainedStack whole(c, 0, find), sharded(c, 3, find);
      for (int step = 0; step < 4; ++step) {
        StackPass how;
        if (step == 1 || (step == 2 && c.rank() == 0)) how.skipped = unit;
        whole.step(share(c, x), how);
        sharded.step(share(c, x), how);
        expect_same(whole, sharded, ::lockstep::str("after step ", step));
      }
    });
  }
}

TEST_P(Units, PassesOfAStepAddUp) {
  const auto x = make_inputs(12);
  on_ranks([&](Communicator& c) {
    if (c.size() == 1) return;
    const auto waits_later = [](EngineOptions& o) { o.waits_in_backward = false; };
    TrainedStack twice(c, 2, waits_later), thrice(c, 3, waits_later);
    for (auto* one : {&twice, &thrice}) {
      for (int step = 0; step < 3; ++step) {
        // One rank makes a pass less, which it does not know before.
        const int passes = c.rank() == 0 && c.size() > 1 ? 2 : 3;
        one->engine.zero_gradients(3);
        for (int pass = 0; pass < passes; ++pass) {
          one->engine.end_pass();
          one->loss(x.narrow(0, 4 * pass, 4)).backward();
        }
        one->engine.finish();
        one->optimizers.step({.lr = 0.01});
      }
    }
    expect_same(twice, thrice, "at stages 2 and 3");
  });
}

// Without memory in the middle of a pass, forward or backward, first step or later.
TEST_P(Units, ARankThatFailsLeavesNobodyWaiting) {
  const auto x = make_inputs(12);
  for (const std::size_t failing : {0, 2, 3}) {
    for (const bool in_forward : {true, false}) {
      on_ranks([&](Communicator& c) {
        if (c.size() == 1) return;
        const auto find = [](EngineOptions& o) { o.waits_in_backward = false; };
        TrainedStack sharded(c, 3, find), whole(c, 0, find);
        auto& engine = sharded.engine;
        const bool fails = c.rank() == 0;
        for (const int step : {0, 1}) {
          engine.zero_gradients(2);
          try {
            for (int pass = 0; pass < 2; ++pass) {
              engine.end_pass();
              Tensor loss;
              engine.forward([&] {
                auto h = torch::mm(x, sharded.net->tied);
                for (std::size_t i = 0; i < 4; ++i) {
                  h = engine.run_unit(
                      i,
                      [&](const Tensor& in) {
                        const bool now = fails && i == failing && pass == step;
                        if (now && in_forward) throw std::runtime_error("no memory");
                        auto out = sharded.net->blocks[i]->forward(in);
                        if (now) {
                          out.register_hook([](const Tensor&) -> Tensor {
                            throw std::runtime_error("no memory");
                          });
                        }
                        return out;
                      },
                      h);
                }
                loss = torch::mm(h, sharded.net->tied.t()).sum() * sharded.net->scale;
              });
              loss.backward();
            }
            EXPECT_FALSE(fails);
          } catch (const std::runtime_error& error) {
            EXPECT_THAT(error.what(), HasSubstr("no memory"));
            EXPECT_TRUE(fails);
          }
          engine.finish(/*failed=*/fails);
        }
        // Steps after it are like any other.
        for (int step = 0; step < 2; ++step) {
          whole.step(share(c, x));
          sharded.step(share(c, x));
        }
        expect_same(whole, sharded, "after the failures");
      });
    }
  }
}

TEST_P(Units, WithoutGradientsRanksMayHaveNothingToCompute) {
  const auto x = make_inputs(12);
  on_ranks([&](Communicator& c) {
    TrainedStack whole(c, 0), sharded(c, 3);
    whole.step(share(c, x));
    sharded.step(share(c, x));
    const torch::NoGradGuard no_grad;
    const auto expected = whole.loss(x);
    if (c.rank() == 0) {
      EXPECT_TRUE(torch::equal(sharded.loss(x), expected));
    } else {
      sharded.engine.empty_forward();
    }
    // One that throws leaves nobody waiting, either.
    if (c.rank() == 0) {
      EXPECT_THROW(sharded.engine.forward([] { throw std::runtime_error("x"); }),
                   std::runtime_error);
    } else {
      EXPECT_TRUE(torch::equal(sharded.loss(x), expected));
    }
  });
}

// Two ranks share the GPU; sums of two have one order.
TEST(UnitsGpu, HaveTheBitsOfWholeParameters) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  with_pairs(Rig::nccl_processes, 2, [](Communicator& c, Communicator& cpu) {
    const auto x = make_inputs(13).to(c.device());
    for (const bool recomputes : {false, true}) {
      TrainedStack whole({c, cpu}, 0), sharded({c, cpu}, 3);
      for (int step = 0; step < 5; ++step) {
        const auto own = step == 3 && c.rank() == 0 ? x.narrow(0, 0, 0) : share(c, x);
        whole.step(own, StackPass{.recomputes = recomputes});
        sharded.step(own, StackPass{.recomputes = recomputes});
        expect_same(whole, sharded, ::lockstep::str("after step ", step));
      }
    }
  });
}

TEST_P(Units, MistakesAreNamed) {
  const auto x = make_inputs(12);
  on_ranks([&](Communicator& c) {
    if (c.size() == 1) return;
    TrainedStack sharded(c, 3);
    auto& engine = sharded.engine;
    const auto plain = [&](std::size_t i) {
      return [&sharded, i](const Tensor& in) {
        return sharded.net->blocks[i]->forward(in);
      };
    };
    engine.zero_gradients();
    EXPECT_THAT(error_text(Fault::config,
                           [&] {
                             engine.forward([&] {
                               const auto h = torch::mm(x, sharded.net->tied);
                               engine.run_unit(1, plain(1),
                                               engine.run_unit(1, plain(1), h));
                             });
                           }),
                HasSubstr("used a second time"));
    engine.finish(/*failed=*/true);
    engine.zero_gradients();
    const auto early = sharded.loss(x);
    const auto late = sharded.loss(x);
    EXPECT_THAT(error_text(Fault::config, [&] { early.backward(); }),
                HasSubstr("each forward pass is followed by its backward pass"));
    engine.finish(/*failed=*/true);
  });
}

}  // namespace lockstep::test::units
