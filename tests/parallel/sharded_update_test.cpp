// Each rank changes its shard of the parameters: the same result as if all changed all.
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
      : rig(c, options), optimizers(config::Config{}, rig.engine, c) {
    rig.engine.on_relayout([this] { optimizers.follow(); });
  }

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

class ShardedUpdate : public ::testing::TestWithParam<std::tuple<Rig, int>> {
 protected:
  void on_ranks(const std::function<void(Communicator&)>& body) const {
    with_communicators(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

// These sum in the order of the ranks, whatever they sum: the bits can be compared.
INSTANTIATE_TEST_SUITE_P(Ranks, ShardedUpdate,
                         ::testing::Values(std::tuple(Rig::local, 1),
                                           std::tuple(Rig::local, 2),
                                           std::tuple(Rig::local, 3),
                                           std::tuple(Rig::gloo_processes, 2),
                                           std::tuple(Rig::shm_processes, 2),
                                           std::tuple(Rig::shm_processes, 3),
                                           std::tuple(Rig::shm_processes, 4)),
                         name_of_ranks);

TEST_P(ShardedUpdate, HasTheBitsOfAWholeOne) {
  const auto batch = make_batch(13);
  for (const std::int64_t bucket_bytes : {1L, 300L, 25L << 20}) {
    on_ranks([&](Communicator& c) {
      Trained whole(c, stage_options(0, bucket_bytes));
      Trained sharded(c, stage_options(1, bucket_bytes));
      const auto [begin, end] = even_share(c, 13);
      for (int step = 0; step < 5; ++step) {
        whole.step(batch, begin, end);
        sharded.step(batch, begin, end);
        expect_same_parameters(whole.rig.net, sharded.rig.net,
                               ::lockstep::str("after step ", step));
      }
    });
  }
}

// Rank 0 has no samples in the first step: buckets are laid out again only after the
// second, when the optimizers remember something.
TEST_P(ShardedUpdate, WhatIsRememberedFollowsALateLayout) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    if (c.size() == 1) return;  // it always has samples
    Trained whole(c, stage_options(0));
    Trained sharded(c, stage_options(1));
    for (int step = 0; step < 4; ++step) {
      auto [begin, end] = even_share(c, 8);
      if (step == 0) {
        begin = c.rank() == 1 ? 0 : 8;
        end = 8;
      }
      whole.step(batch, begin, end);
      sharded.step(batch, begin, end);
      expect_same_parameters(whole.rig.net, sharded.rig.net,
                             ::lockstep::str("after step ", step));
    }
  });
}

TEST_P(ShardedUpdate, SeveralPassesAndAccumulationSumTheSame) {
  const auto batch = make_batch(12);
  on_ranks([&](Communicator& c) {
    Trained whole(c, stage_options(0));
    Trained sharded(c, stage_options(1));
    const auto [begin, end] = even_share(c, 12);
    const auto middle = (begin + end) / 2;
    for (auto* one : {&whole, &sharded}) {
      for (int step = 0; step < 3; ++step) {
        one->rig.engine.zero_gradients();
        {
          const auto scope = one->rig.engine.no_sync();
          loss_of(one->rig.net, batch, begin, middle).backward();
        }
        loss_of(one->rig.net, batch, middle, end).backward();
        loss_of(one->rig.net, batch, begin, end).backward();  // a second sum
        one->optimizers.step({.lr = 0.01});
      }
    }
    expect_same_parameters(whole.rig.net, sharded.rig.net, "after accumulation");
  });
}

TEST_P(ShardedUpdate, WhatNoRankUsesStaysAndWhatOneUsesIsChanged) {
  const auto batch = make_batch(12);
  on_ranks([&](Communicator& c) {
    auto options = stage_options(1);
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
  });
}

TEST_P(ShardedUpdate, AnUnusedParameterIsNamed) {
  const auto batch = make_batch(12);
  on_ranks([&](Communicator& c) {
    Trained sharded(c, stage_options(1));
    const auto [begin, end] = even_share(c, 12);
    sharded.step(batch, begin, end);
    EXPECT_THAT(error_text(Fault::config,
                           [&, b = begin, e = end] {
                             sharded.step(batch, b, e, c.rank() != 0);
                           }),
                HasSubstr("branch.weight"));
  });
}

TEST_P(ShardedUpdate, GradientsCanBeMadeWhole) {
  const auto batch = make_batch(13);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, stage_options(1));
    const auto [begin, end] = even_share(c, 13);
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end).backward();
      rig.engine.gather_gradients();
      expect_close(rig.net, expected);
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

TEST(ShardedUpdateRules, WhatIsNotThereIsRefused) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    for (const int stage : {2, 3}) {
      EXPECT_THAT(
          error_text(Fault::config, [&] { RankRig rig(c, stage_options(stage)); }),
          HasSubstr("stages 0 and 1"));
    }
    auto options = stage_options(1);
    options.gradient_as_bucket_view = false;
    EXPECT_THAT(error_text(Fault::config, [&] { RankRig rig(c, options); }),
                HasSubstr("gradient_as_bucket_view"));
  });
}

}  // namespace lockstep::test
