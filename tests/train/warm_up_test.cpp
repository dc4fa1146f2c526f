// What the worker says in its heartbeat of batches that it computes for the first time.
#include "lockstep/monitor/console.h"
#include "lockstep/run/heartbeat.h"
#include "lockstep/train/trainer.h"
#include "tests/support/support.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using run::Phase;
using testing::ElementsAre;

struct Seen {
  std::vector<Phase> training, evaluating;
};

// Looks at the heartbeat of its own rank whenever it is computed.
struct Looking : models::Model {
  Looking(files::Path its_heartbeat, Seen& its_notes)
      : heartbeat(std::move(its_heartbeat)), seen(its_notes) {}

  torch::Tensor forward(const torch::Tensor& x) override {
    const auto phase = run::HeartbeatReader(heartbeat).read(0)->phase;
    (is_training() ? seen.training : seen.evaluating).push_back(phase);
    return last->forward(x.flatten(1));
  }

  const files::Path heartbeat;
  Seen& seen;
  torch::nn::Linear last = register_module("last", torch::nn::Linear(64, 4));
};

// Two epochs of 20 samples each: batches of 8, 8 and 4, and as many evaluations.
Seen seen_of(config::Config config) {
  config.train.epochs = 2;
  config.eval.every = config::kEachEpoch;
  config.eval.sanity_batches = 0;
  config.batch.eval = 8;
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  auto world = comm::join({}, {});
  Reporter reporter({run, console}, config.monitor, {});
  Seen seen;
  train(test::resolved(config), {run, reporter, stop, world},
        {.train_data = std::make_shared<test::SmallImages>(20),
         .eval_data = std::make_shared<test::SmallImages>(20),
         .build_model = [&](const models::Shape&) {
           return std::make_shared<Looking>(run.heartbeat(), seen);
         }});
  return seen;
}

TEST(WarmUp, IsTheFirstStepAndTheFirstShortBatchAndNoOther) {
  EXPECT_THAT(seen_of(test::small_config()).training,
              ElementsAre(Phase::warming_up, Phase::training, Phase::warming_up,
                          Phase::training, Phase::training, Phase::training));
}

// Of micro-batches a step has several passes; it is new, or it is not.
TEST(WarmUp, IsAllOfAStepOfSeveralPasses) {
  auto config = test::small_config();
  config.batch.micro = 4;
  EXPECT_THAT(
      seen_of(config).training,
      ElementsAre(Phase::warming_up, Phase::warming_up, Phase::training,
                  Phase::training, Phase::warming_up, Phase::training, Phase::training,
                  Phase::training, Phase::training, Phase::training));
}

TEST(WarmUp, IsTheFirstBatchOfTheFirstEvaluationAndItsShortOne) {
  EXPECT_THAT(seen_of(test::small_config()).evaluating,
              ElementsAre(Phase::warming_up, Phase::evaluating, Phase::warming_up,
                          Phase::evaluating, Phase::evaluating, Phase::evaluating));
}

}  // namespace
}  // namespace lockstep::train
