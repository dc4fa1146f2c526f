// Gradients over ranks are the gradients of the whole batch.
#include "lockstep/parallel/backward_order.h"
#include "tests/parallel/odd_net.h"

namespace lockstep::test {

using ::testing::AllOf;
using ::testing::HasSubstr;

namespace {

// Throws in the middle of the backward pass.
struct Explosion : torch::autograd::Function<Explosion> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) {
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               const torch::autograd::tensor_list&) {
    throw std::runtime_error("no memory, say");
  }
};

Tensor failing_loss_of(OddNet& net, const Batch& batch) {
  const auto h = Explosion::apply(torch::relu(net->first->forward(batch.x)));
  return net->last->forward(h).sum();
}

}  // namespace

class EngineTest : public ::testing::TestWithParam<std::tuple<Rig, int>> {
 protected:
  void on_ranks(const std::function<void(Communicator&)>& body) const {
    with_communicators(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, EngineTest,
                         ::testing::Values(std::tuple(Rig::local, 1),
                                           std::tuple(Rig::local, 3),
                                           std::tuple(Rig::gloo_processes, 2),
                                           std::tuple(Rig::gloo_processes, 4),
                                           std::tuple(Rig::shm_processes, 2),
                                           std::tuple(Rig::shm_processes, 3)),
                         name_of_ranks);

TEST_P(EngineTest, GradientsAreThoseOfTheWholeBatch) {
  const auto batch = make_batch(13);
  for (const std::int64_t bucket_bytes : {1L, 300L, 25L << 20}) {
    on_ranks([&](Communicator& c) {
      const auto expected = whole_gradients(batch);
      RankRig rig(c, {.layout = {bucket_bytes / 2 + 1, bucket_bytes}});
      const auto [begin, end] = even_share(c, 13);
      for (int step = 0; step < 3; ++step) {
        rig.engine.zero_gradients();
        loss_of(rig.net, batch, begin, end).backward();
        expect_close(rig.net, expected);
      }
    });
  }
}

TEST_P(EngineTest, UnequalAndEmptySharesAddUp) {
  const auto batch = make_batch(9);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {});
    // The last rank has nearly all samples, the first none (if there are others).
    const std::int64_t begin = c.rank() == c.size() - 1 && c.size() > 1
                                   ? c.size() - 2
                                   : std::max(0, c.rank() - 1);
    const std::int64_t end = c.rank() == c.size() - 1 ? 9 : c.rank();
    for (int step = 0; step < 3; ++step) {
      rig.engine.zero_gradients();
      if (end > begin) loss_of(rig.net, batch, begin, end).backward();
      rig.engine.finish();
      expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, NoSyncAccumulatesAndTheLastPassExchangesAll) {
  const auto batch = make_batch(12);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {.layout = {100, 400}});
    const auto [begin, end] = even_share(c, 12);
    const auto middle = begin + 1;
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      {
        const auto scope = rig.engine.no_sync();
        loss_of(rig.net, batch, begin, middle).backward();
      }
      loss_of(rig.net, batch, middle, end).backward();
      expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, SeveralBackwardPassesOfOneStepAddUp) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {.layout = {100, 400}});
    const auto [begin, end] = even_share(c, 8);
    rig.engine.zero_gradients();
    for (int pass = 0; pass < 3; ++pass) {
      loss_of(rig.net, batch, begin, end).backward();
    }
    expect_close(rig.net, expected, 3);
  });
}

TEST_P(EngineTest, SeveralForwardPassesBeforeOneBackward) {
  const auto batch = make_batch(10);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {});
    const auto [begin, end] = even_share(c, 10);
    const auto middle = (begin + end) / 2;
    const auto one = loss_of(rig.net, batch, begin, middle);
    const auto two = loss_of(rig.net, batch, middle, end);
    (one + two).backward();
    expect_close(rig.net, expected);
  });
}

TEST_P(EngineTest, AllRanksHaveTheSameBitsAndRankZerosStart) {
  const auto batch = make_batch(13);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.layout = {100, 400}});
    const auto [begin, end] = even_share(c, 13);
    loss_of(rig.net, batch, begin, end).backward();
    for (auto* tensor : {&rig.engine.values(0), &rig.engine.gradients(0)}) {
      const auto all = torch::empty({c.size() * tensor->numel()});
      c.all_gather(all, *tensor).wait();
      const auto rows = all.view({c.size(), -1});
      for (int r = 0; r < c.size(); ++r) EXPECT_TRUE(torch::equal(rows[r], rows[0]));
    }
  });
}

TEST_P(EngineTest, TheOrderOfTheBucketsIsThatOfABackwardPass) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    auto other = make_net();
    const auto names = parallel::backward_order(
        *other, [&] { loss_of(other, batch, 0, 8).backward(); });
    const auto order =
        parallel::order_by_name(parallel::trainable_parameters(*other), names);
    RankRig rig(c, {.layout = {100, 400}, .order = order});
    EXPECT_EQ(rig.engine.order(), order);
    // The last layer's gradients come first.
    const auto& first = rig.engine.layout()[0].slots[0];
    EXPECT_THAT(rig.engine.parameters()[first.parameter].name,
                ::testing::AnyOf(HasSubstr("last"), HasSubstr("empty")));
    const auto [begin, end] = even_share(c, 8);
    rig.engine.zero_gradients();
    loss_of(rig.net, batch, begin, end).backward();
    expect_close(rig.net, whole_gradients(batch));
    for (const auto& parameter : rig.engine.parameters()) {
      const auto& tensor = parameter.tensor;
      EXPECT_TRUE(tensor.is_alias_of(rig.engine.values(0))) << parameter.name;
      EXPECT_TRUE(tensor.grad().is_alias_of(rig.engine.gradients(0))) << parameter.name;
    }
  });
}

TEST_P(EngineTest, GradientsThatWereReplacedComeBackAsViews) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      rig.net->zero_grad();  // sets them to none
      loss_of(rig.net, batch, begin, end).backward();
      expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, GradientsWithMemoryOfTheirOwn) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {.gradient_as_bucket_view = false});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end).backward();
      expect_close(rig.net, expected);
      EXPECT_FALSE(rig.net->scale.grad().is_alias_of(rig.engine.gradients(0)));
    }
  });
}

TEST_P(EngineTest, AnUnusedParameterIsNamedWithItsRanks) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {});
    const auto [begin, end] = even_share(c, 8);
    const bool branch = c.rank() != c.size() - 1;
    const auto text = error_text(
        Fault::config, [&] { loss_of(rig.net, batch, begin, end, branch).backward(); });
    EXPECT_THAT(text, AllOf(HasSubstr("'branch.weight' on "),
                            HasSubstr("find_unused_parameters")));
    if (c.size() > 1) {
      EXPECT_THAT(text, HasSubstr(str("'branch.bias' on rank ", c.size() - 1)));
    }
  });
}

TEST_P(EngineTest, WithTheFlagAParameterUsedOnOneRankIsReducedRight) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.find_unused_parameters = true});
    const auto [begin, end] = even_share(c, 8);
    // What the whole would be: every rank's own graph, summed.
    auto reference = make_net(5);
    for (int r = 0; r < c.size(); ++r) {
      const auto b = 8L * r / c.size(), e = 8L * (r + 1) / c.size();
      loss_of(reference, batch, b, e, r == 0).backward();
    }
    for (int step = 0; step < 3; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end, c.rank() == 0).backward();
      expect_close(rig.net, gradients_of(reference));
      EXPECT_TRUE(rig.engine.globally_unused().empty());
    }
    rig.engine.zero_gradients();
    loss_of(rig.net, batch, begin, end, false).backward();
    EXPECT_EQ(rig.engine.globally_unused().size(), 2U) << "branch: weight and bias";
    EXPECT_TRUE(rig.net->branch->weight.grad().eq(0).all().item<bool>());
  });
}

TEST_P(EngineTest, CompressedGradientsAreWithinTheStatedError) {
  const auto batch = make_batch(8);
  for (const auto& [how, error] : {std::pair(parallel::Compression::fp16, 1 / 2048.0),
                                   std::pair(parallel::Compression::bf16, 1 / 256.0)}) {
    on_ranks([&, how = how, error = error](Communicator& c) {
      const auto expected = whole_gradients(batch);
      RankRig rig(c, {.compression = how});
      const auto [begin, end] = even_share(c, 8);
      loss_of(rig.net, batch, begin, end).backward();
      const auto got = gradients_of(rig.net);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (got[i].second.numel() == 0) continue;
        // One rounding of each summand and one of each partial sum.
        const auto bound = 2 * c.size() * error * expected[i].second.abs().max() + 1e-6;
        EXPECT_TRUE(
            (got[i].second - expected[i].second).abs().le(bound).all().item<bool>())
            << got[i].first;
      }
    });
  }
}

TEST_P(EngineTest, APassThatReachesSomeBucketsDoesNotSumTheOthersAgain) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.layout = {1, 1}, .find_unused_parameters = true});
    auto reference = make_net(5);
    loss_of(reference, batch, 0, 8, true).backward();
    loss_of(reference, batch, 0, 8, false).backward();
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end, true).backward();
      loss_of(rig.net, batch, begin, end, false).backward();
      expect_close(rig.net, gradients_of(reference));
    }
  });
}

TEST_P(EngineTest, GradientsThatWereDroppedAreNotAddedTo) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {.layout = {100, 400}});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 3; ++step) {
      rig.net->zero_grad();  // sets them to none, and the engine is not told
      loss_of(rig.net, batch, begin, end).backward();
      expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, NothingOfAnEarlierStepIsLeft) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.find_unused_parameters = true});
    const auto [begin, end] = even_share(c, 8);
    loss_of(rig.net, batch, begin, end).backward();
    rig.engine.zero_gradients();
    rig.engine.finish();  // a step in which no rank has samples
    EXPECT_TRUE(rig.engine.gradients(0).eq(0).all().item<bool>());
    EXPECT_EQ(rig.engine.globally_unused().size(), rig.engine.parameters().size());
  });
}

TEST_P(EngineTest, APassThatFailsOnOneRankHoldsUpNobody) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {.layout = {1, 100}});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 3; ++step) {
      rig.engine.zero_gradients();
      if (step == 1 && c.rank() == 0) {
        EXPECT_THROW(failing_loss_of(rig.net, batch).backward(), std::runtime_error);
        // Not in the middle of a pass.
        error_text(Fault::internal, [&] { rig.engine.zero_gradients(); });
        EXPECT_THAT(error_text(Fault::internal,
                               [&] { loss_of(rig.net, batch, 0, 1).backward(); }),
                    HasSubstr("failed; call finish()"));
      } else {
        loss_of(rig.net, batch, begin, end).backward();
      }
      rig.engine.finish();
      if (step != 1) expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, AfterTheErrorForUnusedParametersItGoesOn) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {});
    const auto [begin, end] = even_share(c, 8);
    error_text(Fault::config,
               [&] { loss_of(rig.net, batch, begin, end, false).backward(); });
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end).backward();
      expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, BucketsAreStampedInTheOrderInWhichTheyStart) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.layout = {1, 1}});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 3; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end).backward();
      const auto& times = rig.engine.host_times();
      ASSERT_EQ(times.ready.size(), rig.engine.parameters().size());
      EXPECT_TRUE(std::is_sorted(times.ready.begin(), times.ready.end()));
      EXPECT_GT(times.ready[0], 0);
      EXPECT_EQ(times.last_ready, times.ready.back());
      EXPECT_GE(times.waited, 0);
      EXPECT_EQ(&rig.engine.times(), &times) << "the host computes";
    }
  });
}

}  // namespace lockstep::test
