// Shards within groups of ranks: every group has a whole.
#include <cmath>
#include <filesystem>
#include <limits>

#include "lockstep/parallel/detail/replicated_state.h"
#include "lockstep/parallel/detail/replicated_tensors.h"
#include "lockstep/parallel/full_tensors.h"
#include "tests/parallel/grouped_net.h"

namespace lockstep::test::units {

using ::testing::HasSubstr;

class ShardGroup : public RanksTest {};

INSTANTIATE_TEST_SUITE_P(Ranks, ShardGroup,
                         ::testing::Values(std::tuple(Rig::local, 4),
                                           std::tuple(Rig::gloo_processes, 4),
                                           std::tuple(Rig::shm_processes, 4)),
                         name_of_ranks);

TEST_P(ShardGroup, EveryStageHasTheSameBitsAndComesNearDdp) {
  const auto x = make_inputs(13);
  on_ranks([&](Communicator& c) {
    InGroups whole(c, 0, 0);
    InGroups first(c, 1, 2);
    InGroups second(c, 2, 2);
    InGroups third(c, 3, 2);
    for (int step = 0; step < 4; ++step) {
      const auto when = ::lockstep::str("after step ", step);
      // A rank of the second group has no samples in every other step.
      const bool idle = step % 2 == 1 && c.rank() == 2;
      const auto own = share(c, x).narrow(0, 0, idle ? 0 : share(c, x).size(0));
      for (auto* one : {&whole, &first, &second, &third}) one->step(own);
      expect_same(first, second, when + ", stage 2");
      expect_same(first, third, when + ", stage 3");
      expect_near_parameters(whole, first, when);
      expect_alike_on_all(third, when);
    }
  });
}

// Ranks share the GPU; two groups of two, and one of all ranks.
TEST(ShardGroupGpu, OverNcclEveryStageHasTheSameBits) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  for (const int ranks : {4, 2}) {
    with_pairs(Rig::nccl_processes, ranks, [&](Communicator& c, Communicator& cpu) {
      const parallel::Communicators both{c, cpu};
      const auto x = make_inputs(13).to(c.device());
      InGroups whole(both, 0, 0), first(both, 1, 2), second(both, 2, 2),
          third(both, 3, 2);
      for (int step = 0; step < 4; ++step) {
        const auto when = ::lockstep::str(ranks, " ranks, after step ", step);
        for (auto* one : {&whole, &first, &second, &third}) one->step(share(c, x));
        expect_same(first, second, when + ", stage 2");
        expect_same(first, third, when + ", stage 3");
        expect_near_parameters(whole, first, when);
        if (ranks == 2) expect_same(whole, first, when + ", as ddp");
        expect_alike_on_all(third, when);
      }
    });
  }
}

TEST_P(ShardGroup, OfAllRanksIsNoGroupAtAll) {
  const auto x = make_inputs(13);
  on_ranks([&](Communicator& c) {
    InGroups whole(c, 0, 0);
    for (const int stage : {1, 2, 3}) {
      InGroups none(c, stage, 0);
      InGroups one(c, stage, c.size());
      for (int step = 0; step < 3; ++step) {
        if (stage == 1) whole.step(share(c, x));
        none.step(share(c, x));
        one.step(share(c, x));
      }
      expect_same(none, one, ::lockstep::str("at stage ", stage));
      expect_same(whole, one, ::lockstep::str("as ddp, at stage ", stage));
    }
  });
}

TEST_P(ShardGroup, ARankHoldsItsShardOfAGroup) {
  on_ranks([&](Communicator& c) {
    for (const int stage : {1, 2, 3}) {
      InGroups trained(c, stage, 2);
      std::int64_t own = 0, all = 0;
      for (const auto& shard : trained.engine.owned()) own += shard.size;
      for (const auto& group : trained.engine.layout()) all += group.numel;
      EXPECT_EQ(own * 2, all) << "stage " << stage;
      EXPECT_EQ(trained.engine.sharers().size(), 2);
    }
  });
}

// Whatever is there twice is written once.
TEST_P(ShardGroup, ACheckpointHasEveryElementOnce) {
  const auto x = make_inputs(13);
  on_ranks([&](Communicator& c) {
    for (const int stage : {1, 3}) {
      InGroups trained(c, stage, 2);
      trained.step(share(c, x));
      parallel::detail::ReplicatedState state(
          {.module = *trained.net,
           .engine = trained.engine,
           .optimizers = trained.optimizers,
           .rank = static_cast<std::size_t>(c.rank()),
           .ranks = static_cast<std::size_t>(c.size())});
      const auto pieces = state.to_save();
      const auto parameters = trained.parameters();
      for (const auto& expected : state.expected()) {
        std::int64_t numel = 1;
        for (const auto size : expected.shape) numel *= size;
        const auto written = torch::zeros({numel}), values = torch::zeros({numel});
        for (const auto& piece : pieces) {
          if (piece.name != expected.name) continue;
          written.narrow(0, piece.begin, piece.data.numel()).add_(1);
          values.narrow(0, piece.begin, piece.data.numel()).add_(piece.data.flatten());
        }
        c.all_reduce(written).wait();
        c.all_reduce(values).wait();
        constexpr std::string_view kModel = "model.";
        if (expected.name.starts_with(kModel)) {
          const auto& whole = parameters.at(expected.name.substr(kModel.size()));
          // Elements are written in the order in which they lie in memory.
          EXPECT_TRUE(torch::equal(values, whole.as_strided({numel}, {1})))
              << expected.name << " at stage " << stage;
        }
        EXPECT_TRUE(written.eq(1).all().item<bool>())
            << expected.name << " at stage " << stage;
      }
    }
  });
}

// An infinity of one rank, of one group, is everybody's.
TEST_P(ShardGroup, AllSkipWhatOneCanNotUse) {
  const auto x = make_inputs(13);
  on_ranks([&](Communicator& c) {
    for (const int stage : {1, 2, 3}) {
      InGroups trained(c, stage, 2);
      auto own = share(c, x).clone();
      if (c.rank() == 3) own.fill_(std::numeric_limits<float>::infinity());
      trained.pass(own);
      EXPECT_TRUE(
          trained.optimizers.step({.lr = 0.01, .skips_nonfinite = true}).skipped);
      int bad = 0;
      trained.engine.visit_gradients([&](std::size_t, const Tensor& gradient) {
        bad += gradient.isfinite().all().item<bool>() ? 0 : 1;
      });
      EXPECT_GT(bad, 0) << "a report names them on every rank";
    }
  });
}

// A norm is of the whole, not of one whole for each group.
TEST_P(ShardGroup, TheNormIsThatOfDdp) {
  const auto x = make_inputs(13);
  on_ranks([&](Communicator& c) {
    InGroups whole(c, 0, 0);
    whole.pass(share(c, x));
    const auto expected = whole.optimizers.step({.lr = 0.01}).norm.item<double>();
    EXPECT_GT(expected, 0.05) << "it is clipped";
    for (const int stage : {1, 2, 3}) {
      InGroups trained(c, stage, 2);
      trained.pass(share(c, x));
      const auto norm = trained.optimizers.step({.lr = 0.01}).norm.item<double>();
      // Gradients that were summed in another order, in float32.
      EXPECT_NEAR(norm, expected, 1e-5 * expected) << "stage " << stage;
    }
  });
}

TEST_P(ShardGroup, WholeTensorsAreGottenAndSet) {
  const auto x = make_inputs(13);
  on_ranks([&](Communicator& c) {
    for (const int stage : {1, 2, 3}) {
      InGroups trained(c, stage, 2);
      trained.step(share(c, x));
      parallel::detail::ReplicatedTensors full(trained.engine, trained.optimizers);
      const auto gradient = full.gradient("turned");
      trained.engine.visit_gradients([&](std::size_t i, const Tensor& whole) {
        if (trained.engine.parameters()[i].name != "turned") return;
        EXPECT_TRUE(torch::equal(whole, gradient)) << "stage " << stage;
      });
      const auto value =
          torch::arange(kWide * kWide, torch::kFloat32).view({kWide, kWide});
      full.set_parameter("turned", value);
      full.set_optimizer_state("turned", "mean", value);
      EXPECT_TRUE(torch::equal(full.parameter("turned"), value)) << stage;
      EXPECT_TRUE(torch::equal(full.optimizer_state("turned").at("mean"), value))
          << stage;
      trained.step(share(c, x));
      expect_alike_on_all(trained, "after a value was set");
    }
  });
}

// The average takes the place of the weights on the ranks of every group.
TEST_P(ShardGroup, TheAverageIsThatOfEveryGroup) {
  const auto x = make_inputs(13);
  on_ranks([&](Communicator& c) {
    for (const int stage : {1, 3}) {
      InGroups trained(c, stage, 2);
      for (int step = 0; step < 3; ++step) trained.step(share(c, x));
      const auto weights = trained.parameters();
      trained.optimizers.use_average(true);
      EXPECT_FALSE(
          torch::equal(trained.parameters().at("turned"), weights.at("turned")));
      expect_alike_on_all(trained, "with the average");
      trained.optimizers.use_average(false);
      for (const auto& [name, tensor] : trained.parameters()) {
        EXPECT_TRUE(torch::equal(tensor, weights.at(name))) << name;
      }
    }
  });
}

// All shards of it follow the weights, by the formula written out.
TEST_P(ShardGroup, TheAverageIsWhatTheFormulaGives) {
  const auto x = make_inputs(13);
  on_ranks([&](Communicator& c) {
    for (const int stage : {0, 1, 2, 3}) {
      InGroups trained(c, stage, /*group=*/stage == 0 ? 0 : 2);
      auto average = trained.parameters();
      for (int step = 0; step < 4; ++step) {
        trained.step(share(c, x));
        const double rest = 1 - (1.0 + step) / (10.0 + step);
        for (const auto& [name, tensor] : trained.parameters()) {
          average[name] = torch::lerp(average[name], tensor, rest);
        }
      }
      trained.optimizers.use_average(true);
      for (const auto& [name, tensor] : trained.parameters()) {
        EXPECT_TRUE(torch::allclose(tensor, average.at(name), 1e-6, 1e-7))
            << name << " at stage " << stage;
      }
      trained.optimizers.use_average(false);
    }
  });
}

TEST_P(ShardGroup, ARankThatFailsLeavesNobodyWaiting) {
  const auto x = make_inputs(12);
  on_ranks([&](Communicator& c) {
    for (const int stage : {1, 2, 3}) {
      InGroups trained(c, stage, 2);
      const bool fails = c.rank() == 1;
      trained.engine.zero_gradients();
      auto loss = trained.loss(share(c, x));
      if (fails) {
        const auto hook = trained.net->one->weight.register_hook(
            [](const Tensor&) -> Tensor { throw std::runtime_error("no memory"); });
        EXPECT_THROW(loss.backward(), std::runtime_error);
        trained.net->one->weight.remove_hook(hook);
      } else {
        loss.backward();
      }
      trained.engine.finish(/*failed=*/fails);
      loss.reset();
      InGroups fresh(c, stage, 2);
      trained.step(share(c, x));
      fresh.step(share(c, x));
      expect_same(trained, fresh, ::lockstep::str("at stage ", stage));
    }
  });
}

TEST_P(ShardGroup, CompressedSumsAreTheSameAtEveryStage) {
  const auto x = make_inputs(13);
  on_ranks([&](Communicator& c) {
    const Change compress = [](EngineOptions& options) {
      options.compression = parallel::Compression::bf16;
    };
    InGroups whole(c, 0, 0);
    InGroups first(c, 1, 2, compress);
    InGroups third(c, 3, 2, compress);
    for (auto* one : {&whole, &first, &third}) one->pass(share(c, x));
    for (const auto& parameter : whole.engine.parameters()) {
      const auto one = full_gradient(first.engine, parameter.name);
      EXPECT_TRUE(torch::equal(one, full_gradient(third.engine, parameter.name)));
      // Rounded to 8 bits, once by each rank and once by each group.
      EXPECT_TRUE(torch::allclose(one, parameter.tensor.grad(), 0.05, 0.02))
          << parameter.name;
    }
  });
}

TEST_P(ShardGroup, OfANumberThatDoesNotDivideIsRefused) {
  on_ranks([&](Communicator& c) {
    EXPECT_THAT(
        error_text(Fault::config, [&] { InGroups trained(c, 1, 3); }),
        HasSubstr("parallel.shard_group: 4 ranks are not groups of 3: 4 = 1 x 3 "
                  "+ 1; set parallel.shard_group=2 or 4"));
    EXPECT_THAT(error_text(Fault::config, [&] { InGroups trained(c, 2, 1); }),
                HasSubstr("a group of one rank shards nothing"));
    EXPECT_THAT(error_text(Fault::config, [&] { InGroups trained(c, 3, 8); }),
                HasSubstr("groups of 8, but there are 4 ranks"));
  });
}

class OrderOfGroups : public RanksTest {};

// With six ranks both sums, within groups and over them, may be of three, which gloo
// sums in an order of its own.
INSTANTIATE_TEST_SUITE_P(Ranks, OrderOfGroups,
                         ::testing::Values(std::tuple(Rig::local, 6),
                                           std::tuple(Rig::gloo_processes, 6),
                                           std::tuple(Rig::shm_processes, 6)),
                         name_of_ranks);

// comm.deterministic: the ranks of a group in their order, then the groups in theirs.
TEST_P(OrderOfGroups, IsThatOfRanksThenOfGroups) {
  const auto x = make_inputs(17);
  on_ranks([&](Communicator& c) {
    auto plain = make_seeded<GroupedNet>(5);
    std::vector<std::map<std::string, Tensor>> of_rank;
    for (int r = 0; r < c.size(); ++r) {
      const auto begin = x.size(0) * r / c.size();
      const auto end = x.size(0) * (r + 1) / c.size();
      plain->zero_grad();
      (plain->forward(x.narrow(0, begin, end - begin), nullptr).pow(2).sum() / 12)
          .backward();
      auto& own = of_rank.emplace_back();
      for (const auto& item : plain->named_parameters()) {
        if (item.value().requires_grad()) own[item.key()] = item.value().grad().clone();
      }
    }
    for (const int group : {2, 3}) {
      for (const int stage : {1, 2, 3}) {
        InGroups trained(c, stage, group);
        trained.pass(share(c, x));
        for (const auto& [name, first] : of_rank[0]) {
          Tensor all;
          for (int begin = 0; begin < c.size(); begin += group) {
            auto sum = of_rank[static_cast<std::size_t>(begin)].at(name).clone();
            for (int r = begin + 1; r < begin + group; ++r) {
              sum.add_(of_rank[static_cast<std::size_t>(r)].at(name));
            }
            all = all.defined() ? all.add_(sum) : sum;
          }
          EXPECT_TRUE(torch::equal(full_gradient(trained.engine, name), all))
              << name << " at stage " << stage << " in groups of " << group;
        }
      }
    }
  });
}

}  // namespace lockstep::test::units
