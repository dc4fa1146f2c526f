// A run that has come to its end: it can be extended, and it is not trained again.
#include "lockstep/train/ending.h"

#include <nlohmann/json.hpp>

#include "lockstep/monitor/console.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/trainer.h"
#include "tests/comm/ranks.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// A run directory that may be trained in several times.
class EndedRun {
 public:
  explicit EndedRun(const files::Path& folder) {
    const auto path = folder / "runs" / "r";
    if (!std::filesystem::exists(path)) {
      run::RunDirectory::create(folder / "runs", {.name = "r"});
    }
    run_.emplace(run::RunDirectory::open(path));
  }

  Result train_on(const config::Config& config) const {
    auto world = comm::join({}, {});
    return train_on(config, world);
  }
  Result train_on(const config::Config& config, comm::World& world) const {
    monitor::Console console(
        {.write = [this](std::string_view text) { said_ += text; }});
    const StopRequest stop;
    Reporter reporter({*run_, console}, config.monitor,
                      {.rank = world.rank(), .ranks = world.size()});
    return train(test::resolved(config), {*run_, reporter, stop, world});
  }

  const std::string& said() const { return said_; }
  const run::RunDirectory& directory() const { return *run_; }
  std::string file(const std::string& name) const {
    return test::read_file(run_->path() / name);
  }
  // All that a person would miss.
  std::vector<std::string> files() const {
    return {file("metrics.jsonl"), file("summary.json"), file("events.jsonl"),
            file("model.safetensors"), file("system.jsonl")};
  }
  std::string state_of(const std::string& checkpoint) const {
    auto state = nlohmann::json::parse(
        storage::verify(run_->checkpoints() / checkpoint, storage::Depth::quick).state);
    state.erase("train_seconds");
    return state.dump(1);
  }

 private:
  std::optional<run::RunDirectory> run_;
  mutable std::string said_;
};

// Reports, evaluations and the end of the first part fall on different steps, and each
// evaluation has a say in what follows.
config::Config meddling_config(std::int64_t steps) {
  auto config = test::quick_config();
  config.train.steps = steps;
  config.train.log_every = 5;
  config.eval.every = 4;
  config.schedule.name = config::Schedule::plateau;
  config.schedule.patience = 0;
  config.schedule.threshold = 10;  // nothing is an improvement
  config.early_stop.patience = 50;
  config.early_stop.divergence = 100;
  config.ema.enabled = true;
  config.checkpoint.interval = units::Duration(0);
  return config;
}

TEST(Ending, ARunThatIsExtendedIsTheSameAsOneThatWasLongerFromTheBeginning) {
  const files::TemporaryDirectory one, other;
  const EndedRun whole(one.path()), extended(other.path());
  whole.train_on(meddling_config(17));
  EXPECT_EQ(extended.train_on(meddling_config(7)).steps, 7);
  const auto last = extended.train_on(meddling_config(17));
  EXPECT_EQ(last.resumed_at, 7);
  EXPECT_EQ(last.steps, 17);
  EXPECT_EQ(extended.file("model.safetensors"), whole.file("model.safetensors"));
  EXPECT_EQ(extended.state_of("last"), whole.state_of("last"));
  const auto lines_after = [](const EndedRun& run) {
    std::vector<std::tuple<std::int64_t, monitor::Split, double>> lines;
    for (const auto& line : monitor::read_metrics(run.directory().metrics())) {
      if (line.step > 7) lines.emplace_back(line.step, line.split, line.loss);
    }
    return lines;
  };
  EXPECT_EQ(lines_after(extended), lines_after(whole));
}

TEST(Ending, ARunLeavesACheckpointAtItsEndUnlessToldNotTo) {
  for (const bool saves : {true, false}) {
    const files::TemporaryDirectory folder;
    const EndedRun run(folder.path());
    auto config = meddling_config(7);
    config.checkpoint.save_last = saves;
    run.train_on(config);
    EXPECT_THAT(storage::list_steps(run.directory().checkpoints()),
                SizeIs(saves ? 1 : 0));
  }
}

TEST(Ending, ARunThatIsOverIsLeftAsItIs) {
  const files::TemporaryDirectory folder;
  const EndedRun run(folder.path());
  const auto config = meddling_config(7);
  run.train_on(config);
  const auto before = run.files();
  const auto again = run.train_on(config);
  EXPECT_EQ(again.already_over, "all 7 steps are done");
  EXPECT_EQ(again.steps, 7);
  EXPECT_EQ(again.stopped_by, 0);
  EXPECT_THAT(run.said(), HasSubstr("nothing to do: the run finished at step 7"));
  // Nor are fewer steps a reason to train.
  EXPECT_NE(run.train_on(meddling_config(3)).already_over, "");
  EXPECT_EQ(run.files(), before);
}

config::Config hopeless_config() {
  auto config = test::quick_config();
  config.train.steps = 20;
  config.eval.every = 1;
  config.early_stop.patience = 2;
  config.early_stop.min_delta = 1000;
  return config;
}

TEST(Ending, ABestOfAnotherMetricSaysNothing) {
  RunState at;
  at.early_stop = early_stop_knobs({.patience = 3, .metric = "loss"});
  at.primary = "accuracy";
  const auto same = [](const RunState& then, const config::EarlyStopConfig& now,
                       const std::string& primary = "accuracy") {
    return watched_the_same(then, {now, primary});
  };
  EXPECT_TRUE(same(at, {.patience = 5, .metric = "loss"}));
  EXPECT_FALSE(same(at, {.patience = 3, .metric = "accuracy"}));
  EXPECT_FALSE(same(at, {.patience = 3}));
  EXPECT_TRUE(same(at, {.patience = 3}, "loss"));
  EXPECT_FALSE(same({}, {.patience = 3})) << "of a version that did not say";

  at.early_stop = early_stop_knobs({.patience = 3});  // auto
  EXPECT_TRUE(same(at, {.patience = 3}));
  EXPECT_TRUE(same(at, {.metric = "accuracy"}));
  EXPECT_FALSE(same(at, {.patience = 3}, "rmse")) << "task.primary is another one now";
  at.primary.clear();
  EXPECT_TRUE(same(at, {.patience = 3}, "rmse")) << "of a version that did not say";
}

// An accuracy that was good is a bad loss, and no best one.
TEST(Ending, AnotherPrimaryMetricBeginsWithoutABest) {
  const files::TemporaryDirectory folder;
  const EndedRun run(folder.path());
  auto config = test::quick_config();
  config.optim.lr = 1e-9;  // the loss stays above 1
  config.eval.every = 2;
  config.train.steps = 4;
  run.train_on(config);
  config.task.primary = "loss";
  config.train.steps = 8;
  const auto last = run.train_on(config);
  ASSERT_TRUE(last.best && last.eval);
  EXPECT_EQ(last.primary, "loss");
  EXPECT_GT(*last.best, 1) << "an accuracy";
  EXPECT_NEAR(*last.best, last.eval->loss, 1e-3);  // nothing is learnt
}

// A loss that is above an accuracy is no reason to lower the rate.
TEST(Ending, APlateauOfAnotherPrimaryMetricBeginsWithoutABest) {
  for (const bool has_other : {false, true}) {
    const files::TemporaryDirectory folder;
    const EndedRun run(folder.path());
    auto config = test::quick_config();
    config.optim.lr = 1e-9;  // nothing is learnt: each evaluation is as the first
    config.train.log_every = 1;
    config.eval.every = 2;
    config.schedule.name = config::Schedule::plateau;
    config.schedule.patience = 0;
    config.train.steps = 2;
    run.train_on(config);
    if (has_other) config.task.primary = "loss";
    config.train.steps = 5;
    run.train_on(config);
    double last = 0;
    for (const auto& line : monitor::read_metrics(run.directory().metrics())) {
      if (const auto lr = line.find("lr")) last = *lr;
    }
    EXPECT_EQ(last == 1e-9, has_other) << last;
  }
}

TEST(Ending, ARunThatHasEndedEarlyIsOverUnlessAskedForMore) {
  const files::TemporaryDirectory folder;
  const EndedRun run(folder.path());
  auto config = hopeless_config();
  EXPECT_EQ(run.train_on(config).steps, 3);
  const auto before = run.files();
  const auto again = run.train_on(config);
  EXPECT_THAT(again.already_over, HasSubstr("accuracy has not improved"));
  EXPECT_THAT(run.said(), HasSubstr("or change early_stop,"));
  config.early_stop.patience = 1;
  EXPECT_NE(run.train_on(config).already_over, "") << "it would have ended before";
  EXPECT_EQ(run.files(), before);

  config.early_stop.patience = 4;
  const auto more = run.train_on(config);
  EXPECT_EQ(more.already_over, "");
  EXPECT_EQ(more.steps, 7) << "patience starts over";
  config.train.steps = 21;
  EXPECT_EQ(run.train_on(config).steps, 11) << "and with more steps, too";
}

TEST(Ending, AllRanksOfARunThatIsOverEndAlike) {
  const files::TemporaryDirectory folder;
  static_cast<void>(EndedRun(folder.path()));
  for (const bool again : {false, true}) {
    const int port = test::free_port();
    test::as_processes(3, [&](int rank) {
      auto config = hopeless_config();
      config.parallel.strategy = config::Strategy::ddp;
      auto world = comm::join(test::environment_of(rank, 3, port), {});
      const auto result = EndedRun(folder.path()).train_on(config, world);
      EXPECT_EQ(result.steps, 3);
      EXPECT_EQ(result.already_over.empty(), !again) << "rank " << rank;
      world.close();
    });
  }
}

TEST(Ending, ThreadsOfARunThatIsOverEndAlike) {
  const files::TemporaryDirectory folder;
  const EndedRun run(folder.path());
  auto config = hopeless_config();
  config.parallel.strategy = config::Strategy::data_parallel;
  config.parallel.ranks = 2;
  for (const bool again : {false, true}) {
    monitor::Console console({.write = [](std::string_view) {}});
    const StopRequest stop;
    const auto result = train_replicas(
        test::resolved(config),
        {run.directory(), {torch::kCPU, torch::kCPU}, console, stop}, {});
    EXPECT_EQ(result.steps, 3);
    EXPECT_EQ(result.already_over.empty(), !again);
  }
}

TEST(Ending, OfAScheduleThatSpansTheRunALongerOneIsToldOf) {
  auto config = test::quick_config();
  const optim::RunLength longer{
      .steps = 200, .steps_per_epoch = 10, .global_batch = 16};
  const RunState at{.steps = 100, .last_step = 100};
  EXPECT_EQ(about_schedule(at, {config.optim, config.schedule}, longer), "")
      << "a constant rate";
  config.schedule.name = config::Schedule::step;
  config.schedule.step_size = 30;
  EXPECT_EQ(about_schedule(at, {config.optim, config.schedule}, longer), "")
      << "drops at the same steps";
  config.schedule.name = config::Schedule::cosine;
  EXPECT_THAT(about_schedule(at, {config.optim, config.schedule}, longer),
              HasSubstr("schedule.name: cosine spans the whole run, which was of 100 "
                        "steps so far and is of 200 from here on"));
  EXPECT_EQ(about_schedule(at, {config.optim, config.schedule}, {.steps = 100}), "");
  EXPECT_EQ(about_schedule({.steps = 100}, {config.optim, config.schedule}, longer), "")
      << "not known";
}

}  // namespace
}  // namespace lockstep::train
