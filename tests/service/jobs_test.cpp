// Jobs from their submission to their end: real supervisors, with a worker that
// computes nothing.
#include <csignal>
#include <random>
#include <thread>

#include <sched.h>
#include <unistd.h>

#include "lockstep/monitor/metrics.h"
#include "lockstep/run/events.h"
#include "lockstep/run/knobs.h"
#include "tests/service/rig.h"

namespace lockstep::service {
namespace {

using ::testing::HasSubstr;

class JobsTest : public test::ServiceRig {
 protected:
  JobsTest() { restart(); }

  void restart() {
    config::ServerConfig config;
    config.queue.cores = 2;
    config.queue.retry_delay = units::Duration(10);
    config.queue.grace = units::Duration(5'000);
    config.queue.resume_after_reboot = resumes_after_reboot_;
    config.provided.models_dir = (state_.path() / "models").string();
    serve(config);
  }

  std::int64_t steps_of(const std::string& id) {
    const auto last = monitor::last_metrics(folder(id).run() / "metrics.jsonl",
                                            monitor::Split::train);
    return last ? last->step : 0;
  }

  // Every step once and in order: none was lost, and no two trained at a time.
  void expect_whole(const std::string& id, std::int64_t steps) {
    const auto run = folder(id).run();
    EXPECT_EQ(run::count_events(run / "events.jsonl", "two_at_a_time"), 0);
    std::int64_t next = 1;
    for (const auto& line : monitor::read_metrics(run / "metrics.jsonl")) {
      EXPECT_EQ(line.step, next++);
    }
    EXPECT_EQ(next - 1, steps);
  }

  bool resumes_after_reboot_ = false;
};

TEST_F(JobsTest, AJobIsPlannedRunsAndIsDone) {
  const auto id = submit(30);
  ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  expect_whole(id, 30);
  std::vector<JobState> states;
  for (const auto& change : service_->history(ada_, id)) states.push_back(change.state);
  EXPECT_EQ(states.front(), JobState::queued);
  EXPECT_EQ(states.at(1), JobState::planning);
  EXPECT_EQ(states.back(), JobState::done);
  EXPECT_TRUE(service_->store().leases().empty());
  EXPECT_GT(job(id).seconds, 0);
}

TEST_F(JobsTest, ARunningJobOutlivesItsServerAndIsAdopted) {
  const auto id = submit_held(50);
  ASSERT_TRUE(reaches(id, JobState::running));
  service_->stop();
  test::let_go(folder(id), 30);
  ASSERT_TRUE(test::eventually([&] { return steps_of(id) == 30; }));
  restart();
  test::let_go(folder(id));
  ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  EXPECT_EQ(job(id).attempt, 1);
  expect_whole(id, 50);
}

TEST_F(JobsTest, AJobThatEndsWithoutAServerIsFoundDone) {
  const auto id = submit_held(20);
  ASSERT_TRUE(reaches(id, JobState::running));
  service_->stop();
  test::let_go(folder(id));
  ASSERT_TRUE(test::eventually(
      [&] { return look_at_attempt(folder(id), 1).status == AttemptStatus::ended; }));
  restart();
  EXPECT_TRUE(reaches(id, JobState::done));
}

TEST_F(JobsTest, AnAttemptIsStartedOnceHoweverOftenItIsAskedFor) {
  const auto id = submit_held(40);
  ASSERT_TRUE(reaches(id, JobState::running));
  const auto executor = make_local_executor(service_->caller());
  for (int i = 0; i < 5; ++i) {
    executor->start({.folder = folder(id), .job = job(id), .attempt = 1},
                    service_->pool());
  }
  ASSERT_TRUE(test::eventually([&] {
    const auto log = test::read_file(folder(id).log(1));
    int left = 0;  // by whom it says so
    for (auto at = log.find("has a supervisor"); at != std::string::npos;
         at = log.find("has a supervisor", at + 1)) {
      ++left;
    }
    return left == 5;
  }));
  test::let_go(folder(id));
  ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  expect_whole(id, 40);
  EXPECT_EQ(run::count_events(folder(id).run() / "events.jsonl", "started"), 1);
}

TEST_F(JobsTest, AKilledSupervisorMeansFailedOrAnotherTry) {
  for (const int retries : {0, 1}) {
    const auto id = submit_held(80, {.max_retries = retries});
    ASSERT_TRUE(reaches(id, JobState::running));
    ASSERT_TRUE(test::eventually([&] { return steps_of(id) > 5; }));
    const auto view = look_at_attempt(folder(id), 1);
    ASSERT_TRUE(view.supervisor);
    ASSERT_TRUE(signal_supervisor(*view.supervisor, SIGKILL));
    test::let_go(folder(id));
    ASSERT_TRUE(reaches(id, retries == 0 ? JobState::failed : JobState::done))
        << job(id).reason;
    if (retries == 0) {
      EXPECT_THAT(job(id).reason, HasSubstr("supervisor was killed"));
      // What it had and wrote counts, though nobody came to say so.
      EXPECT_GT(job(id).seconds, 0);
      EXPECT_GT(job(id).bytes, 0);
    } else {
      EXPECT_EQ(job(id).attempt, 2);
      expect_whole(id, 80);
    }
  }
}

// The boot id that a supervisor wrote down is another one than the machine's.
TEST_F(JobsTest, AfterARebootAJobIsInterruptedOrGoesOnIfThatIsWanted) {
  for (const bool resumes : {false, true}) {
    resumes_after_reboot_ = resumes;
    restart();
    const auto id = submit_held(30);
    ASSERT_TRUE(test::eventually([&] { return steps_of(id) == 10; }));
    service_->stop();
    const auto view = look_at_attempt(folder(id), 1);
    ASSERT_TRUE(signal_supervisor(*view.supervisor, SIGKILL));
    ASSERT_TRUE(test::eventually([&] {
      return look_at_attempt(folder(id), 1).status == AttemptStatus::killed;
    }));
    auto mark = test::read_file(folder(id).started(1));
    mark.replace(mark.find(view.supervisor->boot), view.supervisor->boot.size(),
                 "00000000-before-the-reboot");
    files::write_atomically(folder(id).started(1), mark);
    restart();
    if (!resumes) {
      ASSERT_TRUE(reaches(id, JobState::interrupted)) << job(id).reason;
      EXPECT_EQ(job(id).reason, "the machine was rebooted");
      EXPECT_TRUE(service_->store().leases().empty());
      service_->resume(ada_, id, {});
    }
    test::let_go(folder(id));
    ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
    EXPECT_EQ(job(id).attempt, 2);
    expect_whole(id, 30);
  }
}

TEST_F(JobsTest, CancelStopsWhatRunsAndWhatWaits) {
  const auto first = submit(test::kEndless, {.resources = {.cores = 2}});
  const auto second = submit(10, {.resources = {.cores = 2}});
  ASSERT_TRUE(reaches(first, JobState::running));
  EXPECT_EQ(service_->queue()->at(0).turn.job, second);
  EXPECT_EQ(service_->cancel(ada_, second).state, JobState::cancelled);
  EXPECT_TRUE(service_->queue()->empty());
  EXPECT_EQ(service_->cancel(ada_, first).state, JobState::stopping);
  ASSERT_TRUE(reaches(first, JobState::cancelled));
  EXPECT_TRUE(service_->store().leases().empty());
  EXPECT_THROW(service_->pause(ada_, first), Refusal);
}

// The grace period of restart() is five seconds, and this worker listens to nobody.
TEST_F(JobsTest, AJobThatDoesNotEndIsKilledAfterTheGracePeriod) {
  auto recipe = test::short_recipe(test::kEndless);
  recipe.insert(1, "\"optim\": {\"lr\": 16}, ");
  const auto id = service_->submit(ada_, {.recipe = {.text = recipe}}).id;
  ASSERT_TRUE(test::eventually([&] { return steps_of(id) > 5; }));
  service_->cancel(ada_, id);
  ASSERT_TRUE(reaches(id, JobState::cancelled)) << job(id).reason;
  EXPECT_TRUE(service_->store().leases().empty());
}

TEST_F(JobsTest, APausedJobGoesOnWhereItWasOnOtherCores) {
  const auto id = submit_held(60);
  ASSERT_TRUE(test::eventually([&] { return steps_of(id) == 10; }));
  service_->pause(ada_, id);
  ASSERT_TRUE(reaches(id, JobState::paused)) << job(id).reason;
  EXPECT_EQ(steps_of(id), 10);
  test::let_go(folder(id));
  EXPECT_TRUE(service_->store().leases().empty());
  service_->resume(ada_, id, Resources{.cores = 2});
  ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  EXPECT_EQ(job(id).resources.cores, 2);
  expect_whole(id, 60);
}

// A rank for each device, however the recipe says it; the global batch stays.
TEST_F(JobsTest, APausedJobGoesOnWithAnotherNumberOfRanks) {
  Submission wanted{.resources = {.cores = 2}};
  wanted.recipe.text =
      R"({"optim": {"lr": 14}, "train": {"steps": 40, "log_every": 1},
          "model": {"name": "mlp"}, "data": {"name": "synthetic", "shape": [4]},
          "batch": {"per_rank": 12, "accumulation": 2},
          "parallel": {"device": "cpu", "ranks": 2}})";
  const auto id = service_->submit(ada_, wanted).id;
  ASSERT_TRUE(test::eventually([&] { return steps_of(id) == 10; }));
  service_->pause(ada_, id);
  ASSERT_TRUE(reaches(id, JobState::paused)) << job(id).reason;
  test::let_go(folder(id));
  service_->resume(ada_, id, Resources{.cores = 1});
  ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  expect_whole(id, 40);
  const auto knobs = run::read_knobs(folder(id).run() / "config.yaml");
  EXPECT_EQ(knobs.at("parallel.ranks"), "1");
  EXPECT_EQ(knobs.at("batch.global"), "24");
}

TEST_F(JobsTest, AFailureIsTriedAgainAsOftenAsAsked) {
  Submission wanted{.max_retries = 2};
  wanted.recipe.text = test::short_recipe(10);
  wanted.recipe.text.insert(1, "\"optim\": {\"lr\": 13}, ");
  const auto id = service_->submit(ada_, wanted).id;
  ASSERT_TRUE(reaches(id, JobState::failed));
  EXPECT_EQ(job(id).attempt, 3);
}

TEST_F(JobsTest, ATimeLimitEndsAJob) {
  const auto id = submit(test::kEndless, {.time_limit = 1'500});
  ASSERT_TRUE(reaches(id, JobState::failed));
  EXPECT_THAT(job(id).reason, HasSubstr("time limit"));
}

TEST_F(JobsTest, AJobWaitsForAnotherAndFailsWithIt) {
  const auto first = submit(50);
  const auto second = submit(5, {.needs = {first}});
  ASSERT_TRUE(reaches(second, JobState::done));
  EXPECT_LE(job(first).finished, job(second).started);
  const auto long_one = submit(test::kEndless);
  const auto third = submit(5, {.needs = {long_one}});
  service_->cancel(ada_, long_one);
  ASSERT_TRUE(reaches(third, JobState::failed));
  EXPECT_THAT(job(third).reason, HasSubstr("needs"));
}

// As a route does: the change and its line in the audit log are one transaction.
TEST_F(JobsTest, JobsAreSubmittedInsideOfTransactionsWhileTheQueueMoves) {
  std::vector<std::string> ids;
  for (int i = 0; i < 20; ++i) {
    service_->store().transaction([&] { ids.push_back(submit(1)); });
  }
  for (const auto& id : ids) ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  EXPECT_EQ(service_->jobs(ada_, {}).size(), 20U);
}

TEST_F(JobsTest, OthersDoNotSeeOrTouchAJob) {
  const auto id = submit(test::kEndless);
  const auto eve = test::as("eve");
  EXPECT_THROW(service_->job(eve, id), Refusal);
  EXPECT_THROW(service_->cancel(eve, id), Refusal);
  EXPECT_THROW(service_->pause(eve, id), Refusal);
  EXPECT_THROW(service_->folder(eve, id), Refusal);
  EXPECT_TRUE(service_->jobs(eve, {}).empty());
  EXPECT_THROW(
      service_->submit(eve, {.recipe = {.text = test::short_recipe(1)}, .needs = {id}}),
      Refusal);
  const auto viewer = test::as("ada", Role::viewer);
  EXPECT_EQ(service_->job(viewer, id).id, id);
  EXPECT_THROW(service_->cancel(viewer, id), Refusal);
}

TEST_F(JobsTest, ASupervisorHasNothingOfTheServersEnvironment) {
  const auto kept = clean_environment({{"PATH", "/bin"},
                                       {"LOCKSTEP_TOKEN", "s"},
                                       {"AWS_SECRET_ACCESS_KEY", "s"},
                                       {"LOCKSTEP_OPTIM_LR", "1"},
                                       {"NCCL_DEBUG", "INFO"},
                                       {"MLFLOW_TRACKING_URI", "http://a:s@b"},
                                       {"MLFLOW_TRACKING_TOKEN", "s"},
                                       {"LD_PRELOAD", "x"}});
  EXPECT_EQ(kept, (std::vector<std::pair<std::string, std::string>>{
                      {"PATH", "/bin"}, {"NCCL_DEBUG", "INFO"}}));
}

// What ends the server, a terminal or its manager, does not reach a job.
TEST_F(JobsTest, ASupervisorHasASessionOfItsOwnAndTheCoresOfItsJob) {
  const auto id = submit_held(20);
  ASSERT_TRUE(reaches(id, JobState::running));
  const auto view = look_at_attempt(folder(id), 1);
  ASSERT_TRUE(view.supervisor);
  EXPECT_NE(::getsid(view.supervisor->pid), ::getsid(0));
  EXPECT_NE(::getpgid(view.supervisor->pid), ::getpgid(0));
  cpu_set_t cpus;
  ASSERT_EQ(::sched_getaffinity(view.supervisor->pid, sizeof(cpus), &cpus), 0);
  const auto leases = service_->store().leases();
  ASSERT_EQ(leases.size(), 1U);
  EXPECT_EQ(CPU_COUNT(&cpus), 1);
  EXPECT_TRUE(CPU_ISSET(leases[0].unit, &cpus));
}

// A job that was to have fewer rights must not get the server's.
TEST_F(JobsTest, AJobThatWasToRunAsAnotherUnixUserDoesNotRunAsOurs) {
  add_user(service_->store(), "ada");
  service_->store().transaction([&] {
    service_->store()
        .database()
        .prepare("UPDATE users SET unix_user = 'nobody' WHERE name = 'ada'")
        .run();
  });
  const auto id = submit(5);
  ASSERT_TRUE(reaches(id, JobState::failed));
  EXPECT_THAT(job(id).reason, HasSubstr("queue.unix_users"));
  EXPECT_FALSE(std::filesystem::exists(folder(id).run()));
}

// As the commands do: what was slowed down by others says nothing of the next time.
TEST_F(JobsTest, ARunOnABusyMachineDoesNotCorrectThePlanner) {
  std::vector<std::jthread> others(std::max(1U, std::thread::hardware_concurrency()));
  for (auto& other : others) {
    other = std::jthread([](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
      }
    });
  }
  auto recipe = test::short_recipe(200);
  recipe.insert(1, "\"optim\": {\"lr\": 15}, ");
  const auto id = service_->submit(ada_, {.recipe = {.text = recipe}}).id;
  ASSERT_TRUE(reaches(id, JobState::done)) << job(id).reason;
  EXPECT_THAT(test::read_file(folder(id).log(1)), HasSubstr("other processes took "));
}

TEST_F(JobsTest, AnEndWithNumbersThatAreNoneIsDamaged) {
  const JobFolder place(state_.path() / "made up");
  std::filesystem::create_directories(place.path() / "attempts");
  for (const auto* exit : {"1e300", "99999999999", "1.5", "\"1\""}) {
    test::write_file(place.ended(1), std::string(R"({"state": "failed", "exit": )") +
                                         exit +
                                         R"(, "message": "", "may_retry": false,
                                            "out_of_time": false, "seconds": 1})");
    EXPECT_THROW(look_at_attempt(place, 1), Error) << exit;
  }
}

TEST_F(JobsTest, AReasonDoesNotSayWhereThingsAre) {
  const auto id = submit_held(30);
  ASSERT_TRUE(reaches(id, JobState::running));
  ASSERT_TRUE(test::eventually([&] { return steps_of(id) == 10; }));  // it waits
  std::filesystem::remove_all(folder(id).run());
  ASSERT_TRUE(reaches(id, JobState::failed));
  EXPECT_THAT(job(id).reason, ::testing::Not(HasSubstr(state_.path().string())));
}

TEST_F(JobsTest, WhatCanNeverRunHereIsRefused) {
  EXPECT_THROW(submit(1, {.resources = {.cores = 64}}), Refusal);
  EXPECT_THROW(submit(1, {.resources = {.cores = 1, .gpus = 1}}), Refusal);
}

TEST_F(JobsTest, UploadsComeInPartsAndCountByTheirDigest) {
  auto& uploads = service_->uploads();
  add_user(service_->store(), "ada");
  const std::string text = "{\"text\": \"to be or not\"}\n";
  const auto upload =
      uploads.create(ada_, {.name = "../../etc/passwd",
                            .kind = "jsonl",
                            .bytes = static_cast<std::int64_t>(text.size()),
                            .sha256 = sha256(text)});
  EXPECT_EQ(uploads.add_part(ada_, upload.id, {0, text.substr(0, 5)}).received, 5);
  EXPECT_THROW(uploads.add_part(ada_, upload.id, {3, "x"}), Refusal);
  EXPECT_THROW(uploads.add_part(test::as("eve"), upload.id, {5, "x"}), Refusal);
  EXPECT_TRUE(uploads.add_part(ada_, upload.id, {5, text.substr(5)}).complete);
  EXPECT_EQ(test::read_file(uploads.path_of(upload)), text);
  const auto inside = std::filesystem::relative(uploads.path_of(upload), state_.path());
  EXPECT_EQ(inside.begin()->string(), "files");

  const auto wrong =
      uploads.create(ada_, {.kind = "txt", .bytes = 3, .sha256 = sha256("abc")});
  EXPECT_THROW(uploads.add_part(ada_, wrong.id, {0, "abd"}), Refusal);
  EXPECT_EQ(uploads.find(ada_, wrong.id).received, 0);
  EXPECT_TRUE(uploads.add_part(ada_, wrong.id, {0, "abc"}).complete);
}

}  // namespace
}  // namespace lockstep::service
