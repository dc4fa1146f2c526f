// Values that still travel when the next forward pass begins.
#include <algorithm>
#include <memory>

#include "tests/parallel/unit_rig.h"

namespace lockstep::test::units {

namespace {

// One collective of values: where it writes, and whether it has been waited for.
struct SeenGather {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool waited = false;
};
using SeenGathers = std::vector<std::shared_ptr<SeenGather>>;

// Tells which gathers of another communicator have been waited for.
class WatchedGathers : public Communicator {
 public:
  explicit WatchedGathers(Communicator& inner) : inner_(inner) {}

  int rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  std::string_view backend() const noexcept override { return inner_.backend(); }
  comm::Traits traits() const noexcept override { return inner_.traits(); }
  torch::Device device() const override { return inner_.device(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_.split(color, key);
  }
  void abort() noexcept override { inner_.abort(); }

  comm::Pending start(const comm::Call& call) override {
    auto pending = inner_.start(call);
    if (call.kind != comm::Kind::all_gather) return pending;
    const auto* begin = static_cast<const char*>(call.out[0].const_data_ptr());
    seen.push_back(
        std::make_shared<SeenGather>(SeenGather{begin, begin + call.out[0].nbytes()}));
    return comm::Pending(std::make_unique<Watched>(std::move(pending), seen.back()));
  }

  const SeenGather& gather_of(const Tensor& parameter) const {
    const auto* at = static_cast<const char*>(parameter.const_data_ptr());
    for (const auto& one : seen) {
      if (one->begin <= at && at < one->end) return *one;
    }
    throw std::logic_error("no gather of this parameter");
  }
  std::size_t count_waited() const {
    return static_cast<std::size_t>(std::count_if(
        seen.begin(), seen.end(), [](const auto& one) { return one->waited; }));
  }

  SeenGathers seen;

 private:
  class Watched : public comm::Pending::Impl {
   public:
    Watched(comm::Pending inner, std::shared_ptr<SeenGather> gather)
        : inner_(std::move(inner)), gather_(std::move(gather)) {}
    void wait() override {
      inner_.wait();
      gather_->waited = true;
    }
    bool done() override { return inner_.done(); }

   private:
    comm::Pending inner_;
    std::shared_ptr<SeenGather> gather_;
  };

  Communicator& inner_;
};

// Three blocks, and a parameter of none that is used first.
struct LateStackImpl : torch::nn::Module {
  LateStackImpl() {
    scale = register_parameter("scale", torch::ones({kIn}));
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(
          register_module(::lockstep::str("block", i), torch::nn::Linear(kIn, kIn)));
    }
  }
  using Look = std::function<void(std::size_t)>;
  Tensor forward(const Tensor& x, Engine* engine, const Look& look = {}) {
    auto h = x * scale;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      h = engine->run_unit(
          i,
          [&](const Tensor& in) {
            if (look) look(i);
            return torch::tanh(blocks[i]->forward(in));
          },
          h);
    }
    return h;
  }
  std::vector<const torch::nn::Module*> units() const {
    std::vector<const torch::nn::Module*> list;
    for (const auto& block : blocks) list.push_back(&*block);
    return list;
  }
  Tensor scale;
  std::vector<torch::nn::Linear> blocks;
};
TORCH_MODULE(LateStack);

using TrainedLate = TrainedNet<LateStack>;

void train_late(TrainedLate& trained, const Tensor& x) {
  trained.engine.zero_gradients();
  if (x.size(0) > 0) trained.loss(x).backward();
  trained.engine.finish();
  trained.optimizers.step({.lr = 0.01, .values_may_travel = true});
}

}  // namespace

TEST(LateValues, ABlockWaitsForItsOwn) {
  const auto x = make_inputs(9);
  for (const int stage : {1, 2}) {
    with_communicators(Rig::local, 2, [&](Communicator& c) {
      WatchedGathers watched(c);
      TrainedLate trained({watched, c}, stage);
      watched.seen.clear();
      train_late(trained, share(c, x));
      ASSERT_GT(watched.seen.size(), 3U);
      EXPECT_EQ(watched.count_waited(), 0U);
      std::size_t looked = 0;
      trained.loss(share(c, x), [&](std::size_t block) {
        ++looked;
        EXPECT_TRUE(watched.gather_of(trained.net->scale).waited);
        for (const auto& parameter : trained.net->blocks[block]->parameters()) {
          EXPECT_TRUE(watched.gather_of(parameter).waited) << "block " << block;
        }
        const auto& last = watched.gather_of(trained.net->blocks[2]->weight);
        EXPECT_EQ(last.waited, block == 2) << "block " << block;
      });
      EXPECT_EQ(looked, 3U);
      EXPECT_EQ(watched.count_waited(), watched.seen.size());
      trained.engine.finish();
    });
  }
}

// Those that the pass needs first have started first.
TEST(LateValues, TravelInTheOrderOfAForwardPass) {
  const auto x = make_inputs(9);
  with_communicators(Rig::local, 2, [&](Communicator& c) {
    WatchedGathers watched(c);
    TrainedLate trained({watched, c}, 1);
    watched.seen.clear();
    train_late(trained, share(c, x));
    const auto& first = watched.gather_of(trained.net->scale);
    EXPECT_EQ(watched.seen.front().get(), &first);
    const auto& last = watched.gather_of(trained.net->blocks[2]->weight);
    EXPECT_NE(watched.seen.front().get(), &last);
    trained.engine.wait_for_values();
    EXPECT_EQ(watched.count_waited(), watched.seen.size());
  });
}

class LateRanks : public RanksTest {};

INSTANTIATE_TEST_SUITE_P(Ranks, LateRanks,
                         ::testing::Values(std::tuple(Rig::local, 3),
                                           std::tuple(Rig::gloo_processes, 3),
                                           std::tuple(Rig::shm_processes, 3)),
                         name_of_ranks);

// A rank without samples waits for nothing in a step, and changes its shards all the
// same.
TEST_P(LateRanks, HaveTheBitsOfRanksThatWait) {
  const auto x = make_inputs(11);
  on_ranks([&](Communicator& c) {
    for (const int stage : {1, 2}) {
      const Change in_order = [](EngineOptions& options) {
        options.deterministic = true;
      };
      TrainedLate waits(c, stage, in_order);
      TrainedLate late(c, stage, in_order);
      for (int step = 0; step < 6; ++step) {
        const bool idle = step % 2 == 1 && c.rank() == 1;
        const auto own = share(c, x).narrow(0, 0, idle ? 0 : share(c, x).size(0));
        waits.step(own);
        train_late(late, own);
        if (step % 3 == 2) {
          expect_same(waits, late, ::lockstep::str("after step ", step));
        }
      }
    }
  });
}

}  // namespace lockstep::test::units
