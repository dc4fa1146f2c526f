// What a run saves when it is asked to stop, and at its end.
#include <csignal>

#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/safetensors.h"
#include "lockstep/train/stop_sources.h"
#include "tests/train/checkpoint_rig.h"

namespace lockstep::train {
namespace {

using test::flip_a_bit;
using test::run_alone;
using testing::Contains;
using testing::HasSubstr;

TEST(Checkpoint, SignalsAndAFileAskForOne) {
  struct Asks : Callback {
    explicit Asks(std::function<void()> how) : ask(std::move(how)) {}
    void on_step_begin(const RunContext& m, const data::Batch&) override {
      if (m.step == 3) ask();
    }
    std::function<void()> ask;
  };
  auto config = test::quick_config();
  config.train.steps = 8;
  config.checkpoint.every = 0;
  const auto run = [&](const files::Path& folder, std::function<void()> how) {
    return run_alone(folder, config, {.callbacks = {std::make_shared<Asks>(how)}});
  };
  {
    const files::TemporaryDirectory folder;
    const auto ran = run(folder.path(), [] { ::raise(SIGUSR2); });
    EXPECT_EQ(ran.result.steps, 8) << "it goes on";
    EXPECT_THAT(ran.events, Contains("checkpoint"));
  }
  for (const int signal : {SIGTERM, SIGUSR1, 0}) {
    const files::TemporaryDirectory folder;
    config.train.steps = 1'000'000;  // a file is not looked for at every step
    const auto ran = run(folder.path(), [&] {
      if (signal != 0) {
        ::raise(signal);
      } else {
        test::write_file(folder.path() / "runs" / "r" / "stop", "");
      }
    });
    EXPECT_LT(ran.result.steps, 1'000'000) << signal;
    EXPECT_THAT(ran.result.checkpoint, HasSubstr(str("step_", ran.result.steps)));
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "runs" / "r" / "stop"));
    config.train.steps = ran.result.steps + 1;
    EXPECT_EQ(run_alone(folder.path(), config).result.resumed_at, ran.result.steps);
  }
}

TEST(Checkpoint, AFileIsSeenWhileEvaluating) {
  struct Asks : Callback {
    explicit Asks(files::Path where) : file(std::move(where)) {}
    void on_eval_begin(const RunContext& m) override {
      if (m.step == 3) test::write_file(file, "");
    }
    files::Path file;
  };
  const files::TemporaryDirectory folder, other;
  auto config = test::quick_config();
  config.train.steps = 1000;
  config.eval.every = 3;
  config.data.name = "synthetic";
  config.data.shape = {1, 28, 28};
  config.data.synthetic_samples = 10'000'000;  // hours, if nobody looked
  config.data.eval_samples = 0;
  config.batch.eval = 1;
  const auto run = folder.path() / "runs" / "r";
  const auto ran = run_alone(folder.path(), config,
                             {.callbacks = {std::make_shared<Asks>(run / "stop")}});
  EXPECT_EQ(ran.result.stopped_by, SIGTERM);
  EXPECT_THAT(ran.result.checkpoint, HasSubstr("step_3"));
  EXPECT_FALSE(ran.result.eval) << "it was not evaluated to the end";
}

TEST(Checkpoint, ASaveThatTakesLongIsBegunEarlier) {
  const StopRequest signals;
  StopSources sources({.signals = signals,
                       .file = "nowhere/stop",
                       .job_end = Clock::system().wall() + std::chrono::minutes(30)});
  EXPECT_EQ(sources.asked(), 0);
  sources.leave_room(std::chrono::minutes(31));
  EXPECT_EQ(sources.asked(), SIGUSR1);
}

TEST(Checkpoint, TheEndOfAJobIsKnownAndTimeLimitsSaveToo) {
  const files::TemporaryDirectory folder, other;
  auto config = test::quick_config();
  config.train.steps = 1'000'000;
  const auto ran =
      run_alone(folder.path(), config,
                {.job_end = Clock::system().wall() + std::chrono::seconds(5)});
  EXPECT_EQ(ran.result.stopped_by, SIGUSR1);
  EXPECT_TRUE(ran.result.checkpoint.empty()) << "no step was done";
  config.train.max_time = std::chrono::milliseconds(300);
  const auto timed = run_alone(other.path(), config);
  EXPECT_TRUE(timed.result.out_of_time);
  EXPECT_THAT(timed.result.checkpoint, HasSubstr("step_"));
}

TEST(Checkpoint, TheBestIsEvaluatedAndWrittenAtTheEnd) {
  const files::TemporaryDirectory folder;
  auto config = test::quick_config();
  config.train.steps = 12;
  config.optim.lr = 0.5;  // it only gets worse
  config.eval.every = 2;
  config.early_stop.metric = "loss";
  config.checkpoint.every = 2;
  config.checkpoint.keep = 1;
  config.checkpoint.load_best = true;
  const auto ran = run_alone(folder.path(), config);
  const auto steps = folder.path() / "runs" / "r" / "checkpoints";
  const auto best = storage::verify(steps / "best", storage::Depth::full);
  ASSERT_TRUE(best.metric);
  EXPECT_NEAR(ran.result.eval->loss, best.metric->value, 1e-6);
  EXPECT_LE(storage::list_steps(steps).size(), 2U) << "the last and the best";
  EXPECT_EQ(best.versions.at("lockstep"), version());
  EXPECT_TRUE(best.versions.contains("libtorch"));
  // A best one that is damaged is no reason to lose the run: the last weights stay.
  flip_a_bit(steps / "best" / "rank_0.safetensors");
  config.train.steps = 13;
  config.eval.every = 0;
  const auto again = run_alone(folder.path(), config);
  EXPECT_EQ(again.result.steps, 13);
  EXPECT_GT(again.result.eval->loss, best.metric->value);
}

TEST(Checkpoint, ALookAtTheBestIsNoEvaluationToPatience) {
  const files::TemporaryDirectory folder;
  auto config = test::quick_config();
  config.train.steps = 30;
  config.optim.lr = 0.5;  // it only gets worse
  config.eval.every = 2;
  config.early_stop.metric = "loss";
  config.early_stop.patience = 2;
  config.checkpoint.every = 2;
  config.checkpoint.load_best = true;
  const auto ran = run_alone(folder.path(), config);
  EXPECT_LT(ran.result.steps, 30);
  EXPECT_THAT(ran.result.ended_early, HasSubstr("for 2 evaluations"));
}

TEST(Checkpoint, ADiskThatIsGoneIsAnEvent) {
  const files::TemporaryDirectory folder;
  auto config = test::quick_config();
  config.train.steps = 4;
  config.checkpoint.every = 2;
  // A link to a disk that is gone.
  const auto block = [&](const files::Path& place) {
    run::RunDirectory::create(place / "runs", {.name = "r"});
    std::filesystem::create_symlink("gone", place / "runs" / "r" / "checkpoints");
  };
  block(folder.path());
  const auto ran = run_alone(folder.path(), config);
  EXPECT_EQ(ran.result.steps, 4);
  EXPECT_THAT(ran.events, Contains("checkpoint_failed"));
  EXPECT_TRUE(ran.result.checkpoint.empty());
  const files::TemporaryDirectory other;
  block(other.path());
  config.checkpoint.on_failure = config::OnSaveFailure::stop;
  EXPECT_THAT(test::error_text(Fault::io, [&] { run_alone(other.path(), config); }),
              HasSubstr("checkpoint.on_failure"));
}

TEST(Checkpoint, WeightsOfAFileAreWhereTrainingBegins) {
  const files::TemporaryDirectory one, other;
  auto config = test::quick_config();
  config.train.steps = 10;
  config.optim.lr = 0.01;
  const auto first = run_alone(one.path(), config);
  config.model.weights = (one.path() / "runs" / "r" / "model.safetensors").string();
  config.train.steps = 1;
  config.optim.lr = 1e-12;
  const auto second = run_alone(other.path(), config);
  EXPECT_NEAR(second.result.eval->loss, first.result.eval->loss, 1e-4);
  config.model.hidden = 8;
  EXPECT_THAT(test::error_text(Fault::config, [&] { run_alone(other.path(), config); }),
              HasSubstr("other shape"));
}

}  // namespace
}  // namespace lockstep::train
