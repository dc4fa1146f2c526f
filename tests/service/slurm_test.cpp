// Jobs under Slurm, whose programs stand here as scripts: sbatch runs what it is given,
// squeue and sacct know what became of it, scancel signals it. scripts/test_slurm.sh
// has the real ones.
#include <csignal>
#include <cstdlib>

#include "lockstep/base/text.h"
#include "lockstep/run/events.h"
#include "tests/service/rig.h"

namespace lockstep::service {
namespace {

using ::testing::HasSubstr;

// A job has a number, a file with its process, and while `hold` is there it is pending.
constexpr const char* kSbatch = R"sh(#!/bin/sh
cd "$(dirname "$0")"
echo "sbatch $*" >> calls
[ -e refuse ] && { echo 'sbatch: error: Batch job submission failed: Invalid partition' >&2; exit 1; }
number=$(($(cat number 2>/dev/null || echo 0) + 1))
echo $number > number
for word; do
  case $word in --output=*) log=${word#--output=} ;; --job-name=*) echo ${word#*=} > $number.name ;; esac
  script=$word
done
if [ -e hold ]; then echo PENDING > $number.state; echo "$number;cluster"; exit 0; fi
echo RUNNING > $number.state
(setsid sh -c "echo \$\$ > $number.part; mv $number.part $number.pid; exec env -i sh '$script' >> '$log' 2>&1" &) < /dev/null > /dev/null 2>&1
echo "$number;cluster"
)sh";

constexpr const char* kSqueue = R"sh(#!/bin/sh
cd "$(dirname "$0")"
echo "squeue $*" >> calls
for file in *.state; do
  [ -e "$file" ] || continue
  number=${file%.state}
  state=$(cat "$file")
  if [ "$state" = RUNNING ] && [ -e $number.pid ]; then
    # Its parent may never ask how it ended.
    grep -q '^State:[^ZX]*$' /proc/$(cat $number.pid)/status 2>/dev/null || continue
  fi
  [ "$state" = RUNNING ] || [ "$state" = PENDING ] || continue
  echo "$number $state $(cat $number.name)"
done
)sh";

constexpr const char* kSacct = R"sh(#!/bin/sh
cd "$(dirname "$0")"
echo "sacct $*" >> calls
cat accounted 2>/dev/null || { echo 'Slurm accounting storage is disabled' >&2; exit 1; }
)sh";

constexpr const char* kScancel = R"sh(#!/bin/sh
cd "$(dirname "$0")"
echo "scancel $*" >> calls
for word; do number=$word; done
case "$*" in
  *--signal=TERM*) kill -TERM "$(cat $number.pid)" ;;
  *) echo CANCELLED > $number.state; [ -e $number.pid ] && kill -KILL "$(cat $number.pid)" ;;
esac
exit 0
)sh";

class SlurmTest : public test::ServiceRig {
 protected:
  SlurmTest() {
    for (const auto& [name, script] :
         {std::pair("sbatch", kSbatch), std::pair("squeue", kSqueue),
          std::pair("sacct", kSacct), std::pair("scancel", kScancel)}) {
      test::write_file(slurm_.path() / name, script);
      std::filesystem::permissions(slurm_.path() / name, std::filesystem::perms(0755));
    }
    // Before the service has a thread.
    path_ = std::getenv("PATH");
    ::setenv("PATH", (slurm_.path().string() + ":" + path_).c_str(), 1);
    restart();
  }

  ~SlurmTest() override {
    end();
    ::setenv("PATH", path_.c_str(), 1);
  }

  void restart() {
    config::ServerConfig config;
    config.queue.executor = config::Executor::slurm;
    config.queue.slurm_partition = "big";
    config.queue.slurm_interval = units::Duration(1);
    config.queue.retry_delay = units::Duration(10);
    serve(config);
  }

  void touch(const std::string& name) { test::write_file(slurm_.path() / name, ""); }
  std::string calls() {
    const auto file = slurm_.path() / "calls";
    return std::filesystem::exists(file) ? test::read_file(file) : "";
  }
  int count_calls(const std::string& program) {
    int count = 0;
    for (const auto& line : text::split(calls(), '\n')) {
      count += line.rfind(program + " ", 0) == 0 ? 1 : 0;
    }
    return count;
  }

  std::string path_;
  files::TemporaryDirectory slurm_;
};

TEST_F(SlurmTest, AJobIsABatchScriptOfItsSupervisorAndIsDone) {
  const auto id = submit(20, {.time_limit = 600'000, .resources = {.cores = 3}});
  ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  EXPECT_THAT(calls(), HasSubstr("--parsable --no-requeue --job-name=" + id));
  EXPECT_THAT(calls(), HasSubstr("--cpus-per-task=3"));
  EXPECT_THAT(calls(), HasSubstr("--partition=big"));
  EXPECT_THAT(calls(), HasSubstr("--time=12"));
  EXPECT_EQ(count_calls("sbatch"), 1);
  EXPECT_EQ(run::count_events(folder(id).run() / "events.jsonl", "started"), 1);
}

// More GPUs than this machine has: where it runs is not decided here.
TEST_F(SlurmTest, GpusAreAskedForAndNotLookedForHere) {
  touch("hold");
  const auto id = submit(1, {.resources = {.cores = 1, .gpus = 4}});
  ASSERT_TRUE(test::eventually([&] { return count_calls("sbatch") == 1; }));
  EXPECT_THAT(calls(), HasSubstr("--gpus-per-node=4"));
  EXPECT_TRUE(reaches(id, JobState::planning));
}

TEST_F(SlurmTest, APendingJobIsCancelledWithoutHavingRun) {
  touch("hold");
  const auto id = submit(test::kEndless);
  ASSERT_TRUE(reaches(id, JobState::planning));
  ASSERT_TRUE(test::eventually([&] { return count_calls("squeue") > 2; }));
  EXPECT_EQ(job(id).state, JobState::planning);
  service_->cancel(ada_, id);
  ASSERT_TRUE(reaches(id, JobState::cancelled)) << job(id).reason;
  EXPECT_THAT(calls(), HasSubstr("scancel 1\n"));
  EXPECT_FALSE(std::filesystem::exists(folder(id).started(1)));
}

TEST_F(SlurmTest, ARunningJobIsAskedForACheckpointBeforeItEnds) {
  const auto id = submit(test::kEndless);
  ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
  service_->pause(ada_, id);
  ASSERT_TRUE(reaches(id, JobState::paused)) << job(id).reason;
  EXPECT_THAT(calls(), HasSubstr("scancel --batch --signal=TERM 1\n"));
  service_->resume(ada_, id, {});
  ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
  EXPECT_EQ(count_calls("sbatch"), 2);
  service_->cancel(ada_, id);
  ASSERT_TRUE(reaches(id, JobState::cancelled)) << job(id).reason;
}

TEST_F(SlurmTest, AJobGoesOnWithoutAServerAndIsAdopted) {
  const auto id = submit_held(20);
  ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
  restart();
  test::let_go(folder(id));
  ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  EXPECT_EQ(count_calls("sbatch"), 1);
}

// A server that is killed between sbatch and writing down its number looks for it.
TEST_F(SlurmTest, AnAttemptWhoseNumberWasLostIsFoundByItsName) {
  const auto id = submit_held(20);
  ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
  const auto number = folder(id).path() / "attempts" / "1.slurm";
  std::filesystem::remove(number);
  restart();
  service_->pause(ada_, id);
  ASSERT_TRUE(reaches(id, JobState::paused)) << job(id).reason;
  EXPECT_EQ(count_calls("sbatch"), 1);
  EXPECT_THAT(calls(), HasSubstr("--signal=TERM 1\n"));
}

// As by an sbatch that outlives the server which started it.
TEST_F(SlurmTest, AnAttemptThatWasSubmittedTwiceRunsOnce) {
  const auto id = submit_held(20);
  ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
  const auto attempts = folder(id).path() / "attempts";
  const auto again = test::run(
      {(slurm_.path() / "sbatch").string(), "--job-name=" + id + ".1",
       "--output=" + folder(id).log(1).string(), (attempts / "1.sh").string()});
  ASSERT_THAT(again.out, HasSubstr("2;"));
  files::write_atomically(attempts / "1.slurm", "2");
  // The second supervisor leaves, and the server looks at what is left of the two.
  ASSERT_TRUE(test::eventually([&] {
    const auto queue = test::run({(slurm_.path() / "squeue").string()});
    return queue.out.rfind("1 RUNNING ", 0) == 0 &&
           queue.out.find("\n2 ") == std::string::npos;
  }));
  const int looks = count_calls("squeue");
  ASSERT_TRUE(test::eventually([&] { return count_calls("squeue") > looks + 2; }));
  EXPECT_EQ(job(id).state, JobState::running) << job(id).reason;
  test::let_go(folder(id));
  ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  EXPECT_EQ(job(id).attempt, 1);
  EXPECT_EQ(run::count_events(folder(id).run() / "events.jsonl", "started"), 1);
  EXPECT_EQ(run::count_events(folder(id).run() / "events.jsonl", "two_at_a_time"), 0);
}

TEST_F(SlurmTest, WhatSlurmEndsIsFailedWithSlurmsWord) {
  test::write_file(slurm_.path() / "accounted", "OUT_OF_MEMORY\n");
  const auto id = submit(test::kEndless);
  ASSERT_TRUE(reaches(id, JobState::running)) << job(id).reason;
  const auto view = look_at_attempt(folder(id), 1);
  ASSERT_TRUE(signal_supervisor(*view.supervisor, SIGKILL));
  ASSERT_TRUE(reaches(id, JobState::failed));
  EXPECT_THAT(job(id).reason, HasSubstr("OUT_OF_MEMORY"));
  EXPECT_THAT(calls(), HasSubstr("sacct "));
}

TEST_F(SlurmTest, WhatSlurmRefusesFailsWithItsMessage) {
  touch("refuse");
  const auto id = submit(5);
  ASSERT_TRUE(reaches(id, JobState::failed));
  EXPECT_THAT(job(id).reason, HasSubstr("Invalid partition"));
}

TEST_F(SlurmTest, OneQuestionIsAboutAllJobs) {
  touch("hold");
  for (int i = 0; i < 10; ++i) submit(5);
  ASSERT_TRUE(test::eventually([&] { return count_calls("sbatch") == 10; }));
  for (const auto& line : text::split(calls(), '\n')) {
    if (line.rfind("squeue ", 0) != 0) continue;
    EXPECT_THAT(line, HasSubstr("--me"));
  }
}

}  // namespace
}  // namespace lockstep::service
