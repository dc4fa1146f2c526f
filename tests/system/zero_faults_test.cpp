// Ranks that die or stop inside of a forward or backward pass of stage 3, where every
// rank waits for the shards of the others: as with ddp they are named, nothing hangs,
// and a restart goes on.
#include <signal.h>

#include "lockstep/run/events.h"
#include "tests/system/training.h"

namespace lockstep {
namespace {

using run::Phase;
using run::RunStatus;
using testing::HasSubstr;

class ZeroFaults : public testing::TestWithParam<const char*> {
 protected:
  static constexpr int kRanks = 2;

  // A step takes a while, all of it inside of units.
  std::unique_ptr<test::Job> start(const std::vector<std::string>& more) const {
    const std::vector<std::string> zero{"model.name=gpt",
                                        "model.hidden=64",
                                        "model.layers=4",
                                        "model.heads=2",
                                        "data.name=synthetic",
                                        "data.dtype=int64",
                                        "data.shape=[64]",
                                        "data.classes=50",
                                        "data.synthetic_samples=500",
                                        "data.train_samples=0",
                                        "data.eval_samples=0",
                                        "parallel.strategy=zero",
                                        "parallel.zero_stage=3",
                                        "parallel.persist_below=0",
                                        "eval.every=0",
                                        "watch.step_floor=2s",
                                        "watch.first_step=60s",
                                        "comm.timeout=60s",
                                        str("comm.backend=", GetParam())};
    return std::make_unique<test::Job>(
        test::train_command(run_, kRanks, test::joined(zero, more)));
  }

  // The beats of a rank say `training`, in the first step `warming_up`, from the
  // beginning of its forward pass to the end of its backward pass.
  pid_t signal_in_pass(test::Job& job, bool in_first_step, int number) const {
    const auto phase = in_first_step ? Phase::warming_up : Phase::training;
    std::optional<run::Beat> beat;
    EXPECT_TRUE(test::eventually([&] {
      beat = test::beat_of(run_, 1);
      return beat && beat->phase == phase && (in_first_step || beat->step >= 2);
    })) << job.text();
    if (!beat) return 0;
    EXPECT_EQ(::kill(beat->pid, number), 0);
    return beat->pid;
  }

  static void expect_end(test::Job& job, int status) {
    const auto end = job.wait_for(test::kJobPatience);
    ASSERT_TRUE(end.has_value()) << "it hangs\n" << job.text();
    EXPECT_EQ(end->shell_status(), status) << job.text();
    EXPECT_TRUE(job.is_gone()) << job.text();
  }

  // The rank that the launcher's report of the first attempt names.
  std::int64_t failed_first() const {
    for (const auto& event : run::last_events(run_ / "events.jsonl", 1000)) {
      if (event.kind != "failure") continue;
      for (const auto& field : event.fields) {
        if (field.name == "rank") return std::get<std::int64_t>(field.value);
      }
    }
    return -1;
  }

  files::TemporaryDirectory folder_;
  test::Path run_ = folder_.path() / "run";
};

INSTANTIATE_TEST_SUITE_P(Backends, ZeroFaults, testing::Values("shm", "gloo"));

TEST_P(ZeroFaults, ARankKilledInAPassIsNamedAndFollowedByARestart) {
  for (const bool in_first_step : {true, false}) {
    run_ = folder_.path() / str("killed", in_first_step);
    const auto job = start({"--max-restarts", "1", "train.steps=6"});
    const auto pid = signal_in_pass(*job, in_first_step, SIGKILL);
    expect_end(*job, 0);
    EXPECT_EQ(failed_first(), 1) << job->text();
    EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
    EXPECT_THAT(job->text(), HasSubstr(str("rank 1 (pid ", pid, " on ")));
    EXPECT_THAT(job->text(), HasSubstr("signal 9 (SIGKILL)"));
    for (int rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(test::beat_of(run_, rank)->step, 6);
    }
  }
}

TEST_P(ZeroFaults, ARankStoppedInAPassIsFoundAndNamed) {
  for (const bool in_first_step : {true, false}) {
    run_ = folder_.path() / str("stopped", in_first_step);
    const auto job = start({test::kEndless});
    const auto pid = signal_in_pass(*job, in_first_step, SIGSTOP);
    expect_end(*job, kExitFailed);
    EXPECT_EQ(failed_first(), 1) << job->text();
    EXPECT_EQ(test::record_of(run_).state, RunStatus::failed);
    EXPECT_THAT(job->text(), HasSubstr(str("error: rank 1 (pid ", pid, " on ")));
    EXPECT_THAT(job->text(), HasSubstr("is stopped (SIGSTOP)"));
  }
}

}  // namespace
}  // namespace lockstep
