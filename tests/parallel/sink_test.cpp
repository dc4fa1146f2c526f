// A backward pass that is written out: into the buckets, under every backend, to the
// bits of autograd's where it computes the same.
#include <algorithm>

#include "lockstep/models/model.h"
#include "lockstep/parallel/engine.h"
#include "tests/parallel/odd_net.h"

namespace lockstep::test {
namespace {

using comm::Communicator;
using parallel::Engine;
using parallel::EngineOptions;
using torch::Tensor;

struct SinkSamples {
  Tensor x, y;
};

SinkSamples make_sink_samples(std::int64_t count) {
  auto generator = at::detail::createCPUGenerator(23);
  return {torch::empty({count, 12}).normal_(0, 1, generator),
          torch::empty({count, 5}).normal_(0, 1, generator)};
}

// An mlp with the same values wherever it is made.
std::shared_ptr<models::Model> make_sink_net(bool by_hand) {
  auto model = models::build({.name = "mlp",
                              .hidden = 16,
                              .layers = 2,
                              .own_backward = config::Auto<bool>(by_hand)},
                             {{12}, 5});
  auto generator = at::detail::createCPUGenerator(17);
  const torch::NoGradGuard no_grad;
  for (auto& p : model->parameters()) p.uniform_(-0.5, 0.5, generator);
  return model;
}

// One rank of a job that computes its gradients one way or the other.
struct SinkRank {
  SinkRank(bool written_out, Communicator& communicator, const EngineOptions& options)
      : by_hand(written_out),
        c(communicator),
        net(make_sink_net(written_out)),
        engine(*net, {communicator, communicator}, options) {}

  // This rank's rows [begin, end) of the samples.
  void backward(const SinkSamples& all, std::int64_t begin, std::int64_t end) {
    const auto scale = 1.0 / static_cast<double>(all.x.size(0));
    const auto x = all.x.slice(0, begin, end), y = all.y.slice(0, begin, end);
    if (!by_hand) {
      return ((net->forward(x) - y).square().sum() * scale).backward();
    }
    const torch::NoGradGuard no_grad;
    auto& own = *net->own_backward();
    const auto output = own.forward_kept({{"input", x}}).at("output");
    const auto gradient = (output - y) * 2 * scale;
    engine.backward([&](GradientSink& sink) {
      own.backward({{"output", gradient}}, sink);
    });
  }

  Tensor flat() const {
    std::vector<Tensor> parts;
    for (const auto& p : net->parameters()) parts.push_back(p.grad().flatten());
    return torch::cat(parts);
  }

  bool by_hand;
  Communicator& c;
  std::shared_ptr<models::Model> net;
  Engine engine;
};

struct SinkShare {
  std::int64_t begin = 0, end = 0;
};
SinkShare sink_share_of(const Communicator& c, std::int64_t count) {
  return {count * c.rank() / c.size(), count * (c.rank() + 1) / c.size()};
}

// From stage 2 on no bucket is there before all of it has been computed.
EngineOptions sharded_sink_options() {
  EngineOptions options;
  options.stage = parallel::kStages[2];
  options.layout.first_bucket_bytes = 150;
  options.layout.bucket_bytes = 600;
  return options;
}

// The sums that a rank keeps: those of its shards.
Tensor owned_sums(Engine& engine) {
  std::vector<Tensor> parts;
  for (std::size_t i = 0; i < engine.owned().size(); ++i) {
    parts.push_back(engine.owned_gradients(i).clone());
  }
  return torch::cat(parts);
}

// Every gradient as a whole, which no rank has, is that of a job that has them all.
void expect_whole_gradients(SinkRank& sharded, const SinkRank& whole) {
  std::size_t seen = 0;
  sharded.engine.visit_gradients([&](std::size_t i, const Tensor& gradient) {
    const auto& parameter = whole.engine.parameters()[i];
    const auto& expected = parameter.tensor.grad();
    // Sums of a few terms in another order: 1.5e-7 of the largest was seen.
    EXPECT_LE((gradient - expected).abs().max().item<double>(),
              1e-6 * expected.abs().max().item<double>())
        << parameter.name;
    seen += 1;
  });
  EXPECT_EQ(seen, whole.engine.parameters().size());
}

}  // namespace

class SinkTest : public ::testing::TestWithParam<std::tuple<Rig, int>> {
 protected:
  void on_ranks(const std::function<void(Communicator&)>& body) const {
    with_communicators(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, SinkTest,
                         ::testing::Values(std::tuple(Rig::local, 1),
                                           std::tuple(Rig::local, 3),
                                           std::tuple(Rig::gloo_processes, 2),
                                           std::tuple(Rig::shm_processes, 3)),
                         name_of_ranks);

TEST_P(SinkTest, GradientsHaveTheBitsOfAutograds) {
  const auto samples = make_sink_samples(13);
  for (const std::int64_t bucket_bytes : {1L, 600L, 25L << 20}) {
    for (const bool own_memory : {false, true}) {
      on_ranks([&](Communicator& c) {
        const EngineOptions options{.layout = {bucket_bytes / 2 + 1, bucket_bytes},
                                    .gradient_as_bucket_view = !own_memory};
        SinkRank plain(false, c, options), by_hand(true, c, options);
        const auto [begin, end] = sink_share_of(c, 13);
        for (int step = 0; step < 3; ++step) {
          for (auto* rank : {&plain, &by_hand}) {
            rank->engine.zero_gradients();
            rank->backward(samples, begin, end);
            rank->engine.finish();
          }
          EXPECT_TRUE(by_hand.flat().equal(plain.flat())) << "rank " << c.rank();
        }
      });
    }
  }
}

TEST_P(SinkTest, PassesAccumulateAndARankWithoutSamplesTakesPart) {
  const auto samples = make_sink_samples(9);
  on_ranks([&](Communicator& c) {
    SinkRank plain(false, c, {}), by_hand(true, c, {});
    // The first rank has none, if there are others; the last one the rest.
    const auto [begin, end] =
        c.size() == 1 ? SinkShare{0, 9}
                      : SinkShare{c.rank() == 0 ? 0 : (c.rank() - 1) * 4,
                                  c.rank() == 0              ? 0
                                  : c.rank() == c.size() - 1 ? 9
                                                             : c.rank() * 4};
    for (auto* rank : {&plain, &by_hand}) {
      rank->engine.zero_gradients();
      if (end > begin) {
        const auto middle = begin + (end - begin) / 2;
        {
          const auto accumulating = rank->engine.no_sync();
          rank->backward(samples, begin, middle);
        }
        rank->backward(samples, middle, end);
      }
      rank->engine.finish();
    }
    // Sums of products in another order.
    EXPECT_TRUE(by_hand.flat().allclose(plain.flat(), 1e-5, 1e-7));
  });
}

// What was summed before is not summed again.
TEST_P(SinkTest, ASecondPassThatExchangesIsAddedOnce) {
  const auto samples = make_sink_samples(8);
  on_ranks([&](Communicator& c) {
    SinkRank plain(false, c, {}), by_hand(true, c, {});
    const auto [begin, end] = sink_share_of(c, 8);
    for (auto* rank : {&plain, &by_hand}) {
      rank->engine.zero_gradients();
      for (int pass = 0; pass < 2; ++pass) {
        rank->backward(samples, begin, end);
        rank->engine.finish();
      }
    }
    EXPECT_TRUE(by_hand.flat().allclose(plain.flat(), 1e-5, 1e-7));
  });
}

TEST_P(SinkTest, APassThatFailsLeavesNobodyWaitingAndTheNextStepIsRight) {
  const auto samples = make_sink_samples(12);
  on_ranks([&](Communicator& c) {
    SinkRank plain(false, c, {}), by_hand(true, c, {});
    const auto [begin, end] = sink_share_of(c, 12);
    by_hand.engine.zero_gradients();
    const bool fails = c.rank() == c.size() - 1;
    if (fails) {
      EXPECT_THROW(by_hand.engine.backward([](GradientSink&) {
        throw std::runtime_error("no memory, say");
      }),
                   std::runtime_error);
    } else {
      by_hand.backward(samples, begin, end);
    }
    by_hand.engine.finish(fails);
    for (auto* rank : {&plain, &by_hand}) {
      rank->engine.zero_gradients();
      rank->backward(samples, begin, end);
      rank->engine.finish();
    }
    EXPECT_TRUE(by_hand.flat().equal(plain.flat()));
  });
}

TEST_P(SinkTest, AParameterThatIsNotReadyIsNamed) {
  on_ranks([&](Communicator& c) {
    SinkRank rank(true, c, {});
    rank.engine.zero_gradients();
    const auto text = error_text(Fault::config, [&] {
      rank.engine.backward([&](GradientSink& sink) {
        for (const auto& item : rank.net->named_parameters()) {
          if (item.key() == "hidden2.bias") continue;
          sink.destination_of(item.value()).memory.zero_();
          sink.ready(item.value());
        }
      });
      rank.engine.finish();
    });
    EXPECT_THAT(text, ::testing::HasSubstr("'hidden2.bias' on every rank"));
  });
}

TEST_P(SinkTest, NobodyWantsTheGradientOfAParameterThatIsFrozen) {
  on_ranks([&](Communicator& c) {
    auto net = make_sink_net(true);
    net->named_parameters()["hidden1.weight"].set_requires_grad(false);
    Engine engine(*net, {c, c}, {});
    engine.zero_gradients();
    engine.backward([&](GradientSink& sink) {
      for (const auto& item : net->named_parameters()) {
        auto place = sink.destination_of(item.value());
        EXPECT_EQ(place.memory.defined(), item.key() != "hidden1.weight");
        if (place.memory.defined()) place.memory.fill_(1);
        sink.ready(item.value());
      }
    });
    engine.finish();
    EXPECT_EQ(net->named_parameters()["output.bias"].grad()[0].item<float>(),
              static_cast<float>(c.size()));
  });
}

TEST_P(SinkTest, ShardsOfGradientsHaveTheBitsOfAutograds) {
  const auto samples = make_sink_samples(13);
  on_ranks([&](Communicator& c) {
    SinkRank plain(false, c, sharded_sink_options());
    SinkRank by_hand(true, c, sharded_sink_options());
    SinkRank whole(false, c, {});
    const auto [begin, end] = sink_share_of(c, 13);
    for (int step = 0; step < 3; ++step) {
      for (auto* rank : {&plain, &by_hand, &whole}) {
        rank->engine.zero_gradients();
        rank->backward(samples, begin, end);
        rank->engine.finish();
      }
      for (const auto& p : by_hand.net->parameters()) {
        EXPECT_EQ(p.grad().defined(), c.size() == 1) << "whole on one that is alone";
      }
      EXPECT_TRUE(owned_sums(by_hand.engine).equal(owned_sums(plain.engine)))
          << "rank " << c.rank();
      expect_whole_gradients(by_hand, whole);
    }
  });
}

// At stage 2 every pass travels, and a rank without samples takes part in all of them.
TEST_P(SinkTest, ShardsOfSeveralPassesHaveTheBitsOfAutograds) {
  const auto samples = make_sink_samples(12);
  on_ranks([&](Communicator& c) {
    SinkRank plain(false, c, sharded_sink_options());
    SinkRank by_hand(true, c, sharded_sink_options());
    SinkRank whole(false, c, {});
    // The first rank has none, if there are others; these share them.
    const auto others = std::max(c.size() - 1, 1);
    const auto place = c.size() == 1 ? 0 : c.rank() - 1;
    const auto begin = place < 0 ? 0 : 12L * place / others;
    const auto end = place < 0 ? 0 : 12L * (place + 1) / others;
    for (auto* rank : {&plain, &by_hand, &whole}) {
      rank->engine.zero_gradients(/*passes=*/2);
      if (end > begin) {
        const auto middle = begin + (end - begin) / 2;
        if (rank == &whole) {
          rank->backward(samples, begin, end);
        } else {
          rank->backward(samples, begin, middle);
          rank->backward(samples, middle, end);
        }
      }
      rank->engine.finish();
    }
    EXPECT_TRUE(owned_sums(by_hand.engine).equal(owned_sums(plain.engine)))
        << "rank " << c.rank();
    expect_whole_gradients(by_hand, whole);
  });
}

TEST_P(SinkTest, AParameterThatIsNotReadyIsUnusedWhereThatIsAllowed) {
  on_ranks([&](Communicator& c) {
    SinkRank rank(true, c, {.find_unused_parameters = true});
    const auto parameters = rank.net->named_parameters();
    const auto pass = [&](bool skips) {
      rank.engine.zero_gradients();
      rank.engine.backward([&](GradientSink& sink) {
        for (const auto& item : parameters) {
          if (skips && item.key() == "hidden2.bias") continue;
          sink.destination_of(item.value()).memory.fill_(1);
          sink.ready(item.value());
        }
      });
      rank.engine.finish();
    };
    const auto gradient_of = [&](const std::string& name) {
      return parameters[name].grad()[0].item<float>();
    };
    const auto all = static_cast<float>(c.size());
    pass(/*skips=*/false);
    EXPECT_EQ(gradient_of("hidden2.bias"), all);
    EXPECT_TRUE(rank.engine.globally_unused().empty());
    // One rank has it: its gradient is everybody's.
    pass(/*skips=*/c.rank() != 0);
    EXPECT_EQ(gradient_of("hidden2.bias"), 1);
    EXPECT_EQ(gradient_of("output.bias"), all);
    EXPECT_TRUE(rank.engine.globally_unused().empty());
    // Nobody has it.
    pass(/*skips=*/true);
    EXPECT_EQ(gradient_of("hidden2.bias"), 0);
    EXPECT_EQ(gradient_of("output.bias"), all);
    const auto& unused = rank.engine.globally_unused();
    ASSERT_EQ(unused.size(), 1U);
    EXPECT_EQ(rank.engine.parameters()[unused[0]].name, "hidden2.bias");
  });
}

}  // namespace lockstep::test
