// Each rank changes its shard of the parameters, and from stage 2 on has gradients of
// that shard only: the same result as if all changed all.
#include <map>
#include <set>

#include "lockstep/parallel/detail/flat_optimizers.h"
#include "tests/parallel/odd_net.h"

namespace lockstep::test {

using ::testing::HasSubstr;

namespace {

EngineOptions stage_options(int stage, std::int64_t bucket_bytes = 300) {
  EngineOptions options;
  options.stage = parallel::kStages[static_cast<std::size_t>(stage)];
  options.layout.first_bucket_bytes = bucket_bytes / 2 + 1;
  options.layout.bucket_bytes = bucket_bytes;
  return options;
}

// A net that is trained as a strategy does it.
struct Trained {
  Trained(Communicator& c, const EngineOptions& options)
      : rig(c, options), optimizers({}, rig.engine, c) {}

  void step(const Batch& batch, std::int64_t begin, std::int64_t end,
            bool with_branch = true) {
    rig.engine.zero_gradients();
    if (end > begin) loss_of(rig.net, batch, begin, end, with_branch).backward();
    rig.engine.finish();
    optimizers.step({.lr = 0.01});
  }

  RankRig rig;
  parallel::detail::FlatOptimizers optimizers;
};

void expect_same_parameters(OddNet& one, OddNet& other, const std::string& when) {
  const auto theirs = other->named_parameters();
  for (const auto& item : one->named_parameters()) {
    EXPECT_TRUE(torch::equal(item.value(), theirs[item.key()]))
        << item.key() << " " << when;
  }
}

}  // namespace

class ShardedUpdate : public RanksTest {};

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedUpdate, ranks_that_sum_in_order(),
                         name_of_ranks);

TEST_P(ShardedUpdate, HasTheBitsOfAWholeOne) {
  const auto batch = make_batch(13);
  for (const std::int64_t bucket_bytes : {1L, 300L, 25L << 20}) {
    on_ranks([&](Communicator& c) {
      Trained whole(c, stage_options(0, bucket_bytes));
      Trained sharded(c, stage_options(1, bucket_bytes));
      Trained twice(c, stage_options(2, bucket_bytes));
      const auto [begin, end] = even_share(c, 13);
      for (int step = 0; step < 5; ++step) {
        whole.step(batch, begin, end);
        for (auto* one : {&sharded, &twice}) {
          one->step(batch, begin, end);
          expect_same_parameters(whole.rig.net, one->rig.net,
                                 ::lockstep::str("after step ", step));
        }
      }
    });
  }
}

TEST_P(ShardedUpdate, ARankWithoutSamplesTakesPartWithZeros) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    if (c.size() == 1) return;  // it always has samples
    for (const int stage : {1, 2}) {
      Trained whole(c, stage_options(0));
      Trained sharded(c, stage_options(stage));
      for (int step = 0; step < 4; ++step) {
        auto [begin, end] = even_share(c, 8);
        if (step % 2 == 0) {
          begin = c.rank() == 1 ? 0 : 8;
          end = 8;
        }
        whole.step(batch, begin, end);
        sharded.step(batch, begin, end);
        expect_same_parameters(whole.rig.net, sharded.rig.net,
                               ::lockstep::str("after step ", step));
      }
    }
  });
}

TEST_P(ShardedUpdate, SeveralPassesAndAccumulationSumTheSame) {
  const auto batch = make_batch(12);
  on_ranks([&](Communicator& c) {
    Trained whole(c, stage_options(0));
    Trained sharded(c, stage_options(1));
    Trained twice(c, stage_options(2));
    const auto [begin, end] = even_share(c, 12);
    const auto middle = (begin + end) / 2;
    for (auto* one : {&whole, &sharded, &twice}) {
      for (int step = 0; step < 3; ++step) {
        one->rig.engine.zero_gradients();
        {
          const auto scope = one->rig.engine.no_sync();
          loss_of(one->rig.net, batch, begin, middle).backward();
        }
        loss_of(one->rig.net, batch, middle, end).backward();
        loss_of(one->rig.net, batch, begin, end).backward();  // a second sum
        one->rig.engine.finish();
        one->optimizers.step({.lr = 0.01});
      }
    }
    expect_same_parameters(whole.rig.net, sharded.rig.net, "after accumulation");
    expect_same_parameters(whole.rig.net, twice.rig.net, "at stage 2");
  });
}

TEST_P(ShardedUpdate, WhatNoRankUsesStaysAndWhatOneUsesIsChanged) {
  const auto batch = make_batch(12);
  on_ranks([&](Communicator& c) {
    for (const int stage : {1, 2}) {
      auto options = stage_options(stage);
      options.find_unused_parameters = true;
      Trained sharded(c, options);
      const auto [begin, end] = even_share(c, 12);
      sharded.step(batch, begin, end);
      auto& weight = sharded.rig.net->branch->weight;
      const auto before = weight.detach().clone();
      sharded.step(batch, begin, end, /*with_branch=*/false);
      EXPECT_TRUE(torch::equal(weight, before)) << "nobody used it";
      const bool last = c.rank() == c.size() - 1;
      sharded.step(batch, begin, end, /*with_branch=*/last);
      EXPECT_FALSE(torch::equal(weight, before)) << "the last rank used it";
    }
  });
}

TEST_P(ShardedUpdate, AnUnusedParameterIsNamed) {
  const auto batch = make_batch(12);
  on_ranks([&](Communicator& c) {
    for (const int stage : {1, 2}) {
      Trained sharded(c, stage_options(stage));
      const auto [begin, end] = even_share(c, 12);
      sharded.step(batch, begin, end);
      EXPECT_THAT(error_text(Fault::config,
                             [&, b = begin, e = end] {
                               sharded.step(batch, b, e, c.rank() != 0);
                             }),
                  HasSubstr("branch.weight"));
    }
  });
}

TEST_P(ShardedUpdate, GradientsCanBeMadeWhole) {
  const auto batch = make_batch(13);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    for (const int stage : {0, 1, 2}) {
      RankRig rig(c, stage_options(stage));
      const auto [begin, end] = even_share(c, 13);
      for (int step = 0; step < 2; ++step) {
        rig.engine.zero_gradients();
        loss_of(rig.net, batch, begin, end).backward();
        rig.engine.finish();
        std::map<std::string, Tensor> seen;
        rig.engine.visit_gradients([&](std::size_t i, const Tensor& gradient) {
          seen[rig.engine.parameters()[i].name] = gradient.clone();
        });
        ASSERT_EQ(seen.size(), rig.engine.parameters().size());
        for (const auto& [name, gradient] : expected) {
          if (seen.count(name) == 0) continue;  // a second name of a tied one
          // Sums of a few dozen float32 terms in another order.
          EXPECT_TRUE(torch::allclose(seen[name], gradient, 1e-5, 1e-6)) << name;
        }
      }
    }
  });
}

TEST_P(ShardedUpdate, ARankRemembersItsShardOnly) {
  on_ranks([&](Communicator& c) {
    RankRig rig(c, stage_options(1));
    std::int64_t own = 0, all = 0;
    for (const auto& shard : rig.engine.owned()) own += shard.size;
    for (const auto& group : rig.engine.layout()) all += group.numel;
    EXPECT_EQ(own * c.size(), all);
  });
}

// Buckets of stage 2 have memory while they travel; what stays is the shard.
TEST_P(ShardedUpdate, NoRankKeepsWholeGradients) {
  const auto batch = make_batch(13);
  on_ranks([&](Communicator& c) {
    if (c.size() == 1) return;
    Trained sharded(c, stage_options(2));
    const auto [begin, end] = even_share(c, 13);
    sharded.step(batch, begin, end);
    for (const auto& parameter : sharded.rig.engine.parameters()) {
      EXPECT_FALSE(parameter.tensor.grad().defined()) << parameter.name;
    }
    EXPECT_FALSE(sharded.rig.engine.gradients(0).defined());
    EXPECT_THAT(
        error_text(Fault::config, [&] { sharded.rig.engine.gather_gradients(); }),
        HasSubstr("visit_gradients"));
  });
}

// A rank that makes fewer passes than the others, or fails in one, takes part in all.
TEST_P(ShardedUpdate, ARankThatFailsInAPassLeavesNobodyWaiting) {
  const auto batch = make_batch(12);
  on_ranks([&](Communicator& c) {
    if (c.size() == 1) return;
    auto options = stage_options(2);
    options.waits_in_backward = false;
    RankRig rig(c, options);
    auto& engine = rig.engine;
    const bool fails = c.rank() == 0;
    engine.zero_gradients(/*passes=*/3);
    for (int pass = 0; pass < (fails ? 2 : 3); ++pass) {
      engine.end_pass();
      auto loss = loss_of(rig.net, batch, 4 * pass, 4 * pass + 4);
      if (fails && pass == 1) {
        rig.net->first->weight.register_hook(
            [](const Tensor&) -> Tensor { throw std::runtime_error("no memory"); });
        EXPECT_THROW(loss.backward(), std::runtime_error);
      } else {
        loss.backward();
      }
    }
    engine.finish(/*failed=*/fails);
    // The next step is like any other.
    engine.zero_gradients(1);
    if (!fails) loss_of(rig.net, batch, 0, 12).backward();
    engine.finish();
    const auto expected = whole_gradients(batch);
    engine.visit_gradients([&](std::size_t i, const Tensor& gradient) {
      for (const auto& [name, whole] : expected) {
        if (name != engine.parameters()[i].name) continue;
        const auto ranks = static_cast<double>(c.size() - 1);
        EXPECT_TRUE(torch::allclose(gradient, whole * ranks, 1e-5, 1e-6)) << name;
      }
    });
  });
}

TEST(ShardedUpdateRules, WhatIsNotThereIsRefused) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    auto options = stage_options(1);
    options.gradient_as_bucket_view = false;
    EXPECT_THAT(error_text(Fault::config, [&] { RankRig rig(c, options); }),
                HasSubstr("gradient_as_bucket_view"));
  });
}

}  // namespace lockstep::test
