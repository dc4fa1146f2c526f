// A run from recipe to outcome without a command line, as a server would have it.
#include "lockstep/jobs/job_options.h"
#include "lockstep/jobs/open_run.h"
#include "lockstep/jobs/over.h"
#include "lockstep/jobs/prepare.h"
#include "lockstep/jobs/worker.h"
#include "lockstep/run/events.h"
#include "tests/support/support.h"

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace lockstep::test {
// A caller with a place of its own and a shell script as its worker.
class JobsTest : public ::testing::Test {
 protected:
  JobsTest() {
    caller_.executable = (folder_.path() / "bin/lockstep").string();
    caller_.command_line = "a server";
    caller_.environment = {{"XDG_STATE_HOME", (folder_.path() / "state").string()}};
    caller_.say = [this](std::string_view text) { said_.emplace_back(text); };
    caller_.warn = caller_.say;
    std::filesystem::create_directories(folder_.path() / "bin");
    worker("exit 0\n");
  }

  // $2 is the run directory. It knows nothing of models.
  void worker(const std::string& script) const {
    const auto file = folder_.path() / "bin/lockstep_worker";
    write_file(file, "#!/bin/sh\n[ \"$1\" = --describe ] && exit 2\n" + script);
    std::filesystem::permissions(file, std::filesystem::perms(0755));
  }

  jobs::Prepared prepared(std::vector<config::Override> knobs = {}) const {
    knobs.push_back({"run.dir", (folder_.path() / "runs").string()});
    knobs.push_back({"run.name", "one"});
    knobs.push_back({"train.steps", "3"});
    knobs.push_back({"parallel.device", "cpu"});
    knobs.push_back({"parallel.ranks", "1"});
    return jobs::prepare(config::defaults(knobs, {}), /*chooses=*/true, caller_);
  }

  jobs::OpenedRun opened(const jobs::Prepared& prepared) const {
    const auto& config = prepared.plan.config.config;
    auto lock = jobs::lock_existing_run(config, false, caller_);
    return jobs::open_run(prepared.plan, {.lock = std::move(lock)}, caller_);
  }

  launcher::JobResult run(const jobs::Prepared& prepared) const {
    const auto place = opened(prepared);
    launcher::Signals signals;
    return launcher::run_job(
        place.directory,
        jobs::training_job(prepared.plan, place,
                           {.worker = jobs::find_worker(caller_), .say = caller_.say}),
        signals);
  }

  files::TemporaryDirectory folder_;
  jobs::Caller caller_;
  std::vector<std::string> said_;
};

TEST_F(JobsTest, APreparedRecipeHasNoAutoLeftAndSaysWhatIsNotKnown) {
  const auto ready = prepared();
  EXPECT_NO_THROW(config::Resolved{ready.plan.config.config});
  EXPECT_THAT(ready.knowledge.no_model, HasSubstr("the model is not known"));
}

TEST_F(JobsTest, ARunIsMadeStartedAndEnds) {
  const auto result = run(prepared());
  EXPECT_EQ(result.exit, kExitOk) << result.message;
  const auto run = run::RunDirectory::open(folder_.path() / "runs/one");
  EXPECT_EQ(run.read_record().state, run::RunStatus::done);
  EXPECT_EQ(run.read_record().command, "a server");
  EXPECT_TRUE(std::filesystem::exists(run.config()));
  EXPECT_TRUE(std::filesystem::exists(run.plan()));
}

TEST_F(JobsTest, AFailedRunIsTakenUpAgainAndBeginsAnew) {
  worker("exit 1\n");
  EXPECT_NE(run(prepared()).exit, kExitOk);
  EXPECT_THAT(said_, ::testing::Not(Contains(HasSubstr("starts over"))));
  worker("exit 0\n");
  EXPECT_EQ(run(prepared()).exit, kExitOk);
  EXPECT_THAT(said_, Contains(HasSubstr("has no checkpoint; it starts over")));
}

TEST_F(JobsTest, ARunThatIsOverIsFoundAndNotStartedAgain) {
  EXPECT_FALSE(jobs::find_over(prepared().plan.config)) << "there is none";
  worker(R"(echo '{"time":1,"event":"done","steps":3,"reason":"done","over":true}' \
    >> "$2/events.jsonl"; exit 0
)");
  EXPECT_EQ(run(prepared()).exit, kExitOk);
  const auto over = jobs::find_over(prepared().plan.config);
  ASSERT_TRUE(over);
  EXPECT_EQ(over->done.steps, 3);
  EXPECT_THAT(error_text(Fault::config,
                         [&] {
                           static_cast<void>(jobs::find_over(
                               prepared({{"checkpoint.resume", "never"}}).plan.config));
                         }),
              HasSubstr("does not start over"));
}

TEST_F(JobsTest, TwoCanNotWorkOnOneRun) {
  const auto ready = prepared();
  const auto first = opened(ready);
  EXPECT_THAT(error_text(Fault::config, [&] { static_cast<void>(opened(ready)); }),
              HasSubstr("process"));
}

TEST_F(JobsTest, AResumePathWithoutACheckpointIsRefusedBeforeAnythingIsMade) {
  EXPECT_NO_THROW(jobs::check_resume("auto"));
  EXPECT_THAT(
      error_text(Fault::config, [&] { jobs::check_resume(folder_.path().string()); }),
      HasSubstr("is not a checkpoint, and none is in it"));
}

TEST_F(JobsTest, WithoutAWorkerItSaysHowToGetOne) {
  caller_.executable = "/no/such/place/lockstep";
  EXPECT_THAT(error_text(Fault::hardware,
                         [&] { static_cast<void>(jobs::find_worker(caller_)); }),
              HasSubstr("'/no/such/place/lockstep_worker' does not exist"));
}

}  // namespace lockstep::test
