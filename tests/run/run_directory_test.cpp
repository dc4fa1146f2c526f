#include "lockstep/run/run_directory.h"

#include <optional>
#include <set>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/files.h"
#include "lockstep/base/leftovers.h"
#include "lockstep/run/run_lock.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using run::NewRun;
using run::RunDirectory;
using run::RunStatus;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

NewRun new_run(const std::string& name = "") {
  NewRun run{.name = name,
             .record = run::record_of_this_process(),
             .config_yaml = "optim:\n  lr: 0.1\n",
             .plan_json = "{}\n"};
  run.record.recipe = "recipes/x.yaml";
  run.record.command = "lockstep train recipes/x.yaml";
  return run;
}

TEST(RunDirectory, HoldsItsFilesFromTheFirstMoment) {
  const files::TemporaryDirectory parent;
  ManualClock clock;
  const auto run = RunDirectory::create(parent.path(), new_run("first"), clock);
  EXPECT_EQ(run.path(), parent.path() / "first");
  EXPECT_THAT(test::names_in(run.path()),
              ElementsAre("config.yaml", "logs", "plan.json", "run.json"));
  EXPECT_EQ(test::read_file(run.config()), "optim:\n  lr: 0.1\n");
  EXPECT_EQ(test::read_file(run.plan()), "{}\n");
  EXPECT_THAT(test::names_in(parent.path()), ElementsAre("first"));

  const auto record = run.read_record();
  EXPECT_EQ(record.id, "first");
  EXPECT_EQ(record.recipe, "recipes/x.yaml");
  EXPECT_EQ(record.command, "lockstep train recipes/x.yaml");
  EXPECT_EQ(record.started, iso_time(clock.wall()));
  EXPECT_EQ(record.finished, "");
  EXPECT_EQ(record.state, RunStatus::planned);
  EXPECT_EQ(record.exit, std::nullopt);
  EXPECT_EQ(record.pid, ::getpid());
}

// A run on a disk without any room: in a file system of its own, where that is allowed.
int on_a_full_disk(const std::function<void(const test::Path&)>& make,
                   const std::function<int(const test::Path&)>& then) {
  const files::TemporaryDirectory place;
  return test::in_child([&] {
    constexpr int kNotAllowed = 77;
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", place.path().c_str(), "tmpfs", 0, "size=128k") != 0) {
      return kNotAllowed;
    }
    make(place.path());
    const files::Descriptor rest(
        ::open((place.path() / "rest").c_str(), O_CREAT | O_WRONLY, 0600));
    const std::string page(4096, 'x');
    while (::write(rest.get(), page.data(), page.size()) > 0) {
    }
    return then(place.path());
  });
}

TEST(RunDirectory, OnAFullDiskTheEndOfARunIsStillWrittenDown) {
  const int status = on_a_full_disk(
      [](const test::Path& place) {
        RunDirectory::create(place, new_run("full"))
            .update_record({RunStatus::running, std::nullopt, ""});
      },
      [](const test::Path& place) {
        const auto run = RunDirectory::open(place / "full");
        if (!test::error_of([&] { files::write_atomically(place / "x", "y"); }))
          return 1;
        run.update_record({RunStatus::failed, 3, std::string(10'000, 'm') + "\nmore"});
        const auto record = run.read_record();
        if (record.state != RunStatus::failed || record.exit != 3) return 2;
        return record.message == std::string(200, 'm') ? 0 : 3;
      });
  if (status == 77) GTEST_SKIP() << "no file system may be mounted here";
  EXPECT_EQ(status, 0);
}

TEST(RunDirectory, UnderALimitOfFileSizesTheEndOfARunIsStillWrittenDown) {
  const files::TemporaryDirectory parent;
  const auto run = RunDirectory::create(parent.path(), new_run("limited"));
  run.update_record({RunStatus::running, std::nullopt, ""});
  const int status = test::in_child([&] {
    test::limit_file_size(1024);
    run.update_record({RunStatus::failed, 3, std::string(3000, 'm')});
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(run.read_record().state, RunStatus::failed);
  EXPECT_THAT(test::names_in(run.path()),
              ElementsAre("config.yaml", "logs", "plan.json", "run.json"));
}

TEST(RunDirectory, WhatAKilledProcessWasMakingIsSweptByTheNext) {
  const files::TemporaryDirectory parent;
  const pid_t child = ::fork();
  if (child == 0) {
    const auto left = parent.path() / (".new-run." + files::owner_mark() + ".01234567");
    test::write_file(left / "config.yaml", "");
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(test::names_in(parent.path()).size(), 1U);
  RunDirectory::create(parent.path(), new_run("next"));
  EXPECT_THAT(test::names_in(parent.path()), ElementsAre("next"));
}

TEST(RunDirectory, TheFormatVersionIsOnDisk) {
  const files::TemporaryDirectory parent;
  const auto run = RunDirectory::create(parent.path(), new_run());
  EXPECT_THAT(test::read_file(run.record_file()), HasSubstr("\"format\": 1"));
}

TEST(RunDirectory, RunsAreNumberedAfterTheHighest) {
  const files::TemporaryDirectory parent;
  EXPECT_EQ(RunDirectory::create(parent.path(), new_run()).path().filename(), "0001");
  EXPECT_EQ(RunDirectory::create(parent.path(), new_run()).path().filename(), "0002");
  test::write_file(parent.path() / "0041" / "something", "");
  test::write_file(parent.path() / "notes", "");
  EXPECT_EQ(RunDirectory::create(parent.path(), new_run()).path().filename(), "0042");
}

TEST(RunDirectory, ManyAtOnceGetDifferentNumbers) {
  const files::TemporaryDirectory parent;
  constexpr int kThreads = 4, kEach = 5;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < kEach; ++k) RunDirectory::create(parent.path(), new_run());
      });
    }
  }
  const auto list = run::list_runs(parent.path());
  EXPECT_EQ(list.runs.size(), static_cast<std::size_t>(kThreads * kEach));
  EXPECT_THAT(list.skipped, IsEmpty());
  for (const auto& entry : list.runs) {
    EXPECT_EQ(entry.record.id, entry.directory.path().filename());
  }
}

TEST(RunDirectory, ATakenNameIsRefusedAndUntouched) {
  const files::TemporaryDirectory parent;
  const auto run = RunDirectory::create(parent.path(), new_run("mine"));
  const auto before = test::read_file(run.record_file());
  const auto text = test::error_text(
      Fault::config, [&] { RunDirectory::create(parent.path(), new_run("mine")); });
  EXPECT_THAT(text, HasSubstr("mine' exists already; choose another run.name"));
  EXPECT_EQ(test::read_file(run.record_file()), before);
  EXPECT_THAT(test::names_in(parent.path()), ElementsAre("mine"));
}

TEST(RunDirectory, AnEmptyDirectoryMayBecomeTheRun) {
  const files::TemporaryDirectory parent;
  std::filesystem::create_directory(parent.path() / "empty");
  const auto run = RunDirectory::create(parent.path(), new_run("empty"));
  EXPECT_EQ(run.read_record().id, "empty");
}

TEST(RunDirectory, ANameThatLeavesTheParentIsRefused) {
  const files::TemporaryDirectory parent;
  for (const auto* name : {"a/b", "..", ".", ".hidden", "/abs"}) {
    EXPECT_THAT(
        test::error_text(Fault::config,
                         [&] { RunDirectory::create(parent.path(), new_run(name)); }),
        HasSubstr("cannot name a directory"))
        << name;
  }
  EXPECT_THAT(test::names_in(parent.path()), IsEmpty());
}

TEST(RunDirectory, MissingParentsAreMade) {
  const files::TemporaryDirectory place;
  const auto run = RunDirectory::create(place.path() / "a" / "b" / "", new_run());
  EXPECT_EQ(run.path(), place.path() / "a" / "b" / "0001");
}

TEST(RunDirectory, AFileInItsPlaceIsSaidToBeOne) {
  const files::TemporaryDirectory place;
  test::write_file(place.path() / "mine", "text");
  const auto text = test::error_text(
      Fault::config, [&] { RunDirectory::create(place.path(), new_run("mine")); });
  EXPECT_THAT(text, HasSubstr("mine' cannot be made: there is a file of that name"));
  EXPECT_EQ(test::read_file(place.path() / "mine"), "text");
}

TEST(RunDirectory, AParentBelowAFileIsAClearError) {
  const files::TemporaryDirectory place;
  test::write_file(place.path() / "file", "");
  const auto text = test::error_text(Fault::io, [&] {
    RunDirectory::create(place.path() / "file" / "runs", new_run());
  });
  EXPECT_THAT(text, HasSubstr("run.dir: no run can be made in"));
  EXPECT_THAT(test::names_in(place.path()), ElementsAre("file"));
}

TEST(RunDirectory, AnUnwritableParentIsAClearErrorAndStaysAsItWas) {
  const files::TemporaryDirectory place;
  std::filesystem::permissions(place.path(), std::filesystem::perms(0555));
  const int status = test::in_child([&] {
    if (!test::become_nobody()) return 1;
    const auto error = test::error_of(
        [&] { RunDirectory::create(place.path() / "deep" / "runs", new_run()); });
    if (!error || error->fault() != Fault::io) return 2;
    return std::string(error->what()).find("Permission denied") == std::string::npos
               ? 3
               : 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(test::names_in(place.path()), IsEmpty());
}

// The disk is full at different moments: nothing of the run and none of the directories
// made for it may be left.
TEST(RunDirectory, AFullDiskLeavesNothingBehind) {
  for (const long room : {0L, 10L, 100L}) {
    const files::TemporaryDirectory place;
    auto run = new_run();
    run.config_yaml = std::string(50, '#');
    const int status = test::in_child([&] {
      test::limit_file_size(room);
      const auto error = test::error_of(
          [&] { RunDirectory::create(place.path() / "a" / "runs", run); });
      return error && error->fault() == Fault::io ? 0 : 1;
    });
    EXPECT_EQ(status, 0) << room;
    EXPECT_THAT(test::names_in(place.path()), IsEmpty()) << room;
  }
}

TEST(RunDirectory, AParentThatWasThereIsKeptWhenCreationFails) {
  const files::TemporaryDirectory place;
  std::filesystem::create_directory(place.path() / "runs");
  const int status = test::in_child([&] {
    test::limit_file_size(0);
    return test::error_of(
               [&] { RunDirectory::create(place.path() / "runs", new_run()); })
               ? 0
               : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(test::names_in(place.path()), ElementsAre("runs"));
  EXPECT_THAT(test::names_in(place.path() / "runs"), IsEmpty());
}

TEST(RunDirectory, TheRecordFollowsTheRun) {
  const files::TemporaryDirectory parent;
  ManualClock clock;
  const auto run = RunDirectory::create(parent.path(), new_run(), clock);
  clock.advance(std::chrono::seconds(5));
  run.update_record({RunStatus::running, std::nullopt, ""}, clock);
  EXPECT_EQ(run.read_record().state, RunStatus::running);
  EXPECT_EQ(run.read_record().finished, "");
  run.update_record({RunStatus::failed, 1, "a \"quoted\" reason\nwith \xC3\xA4"},
                    clock);
  const auto record = run.read_record();
  EXPECT_EQ(record.state, RunStatus::failed);
  EXPECT_EQ(record.exit, 1);
  EXPECT_EQ(record.message, "a \"quoted\" reason\nwith \xC3\xA4");
  EXPECT_EQ(record.finished, iso_time(clock.wall()));
  EXPECT_EQ(record.recipe, "recipes/x.yaml");  // the rest is kept
}

TEST(RunDirectory, KeepsWhatWasPredictedAndWhatItCameTo) {
  const files::TemporaryDirectory parent;
  const auto run = RunDirectory::create(parent.path(), new_run("x"));
  EXPECT_FALSE(run.read_record().comparison);
  auto record = run.read_record();
  record.comparison = run::Comparison{.memory_predicted_bytes = 100,
                                      .memory_measured_bytes = 110,
                                      .step_predicted_seconds = 0.5,
                                      .step_measured_seconds = 0.25,
                                      .step_spread = 0.125};
  test::write_file(run.record_file(), run::to_json(record));
  run.update_record({RunStatus::done, 0, ""});
  const auto kept = run.read_record().comparison;
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->memory_predicted_bytes, 100);
  EXPECT_EQ(kept->memory_measured_bytes, 110);
  EXPECT_EQ(kept->step_predicted_seconds, 0.5);
  EXPECT_EQ(kept->step_measured_seconds, 0.25);
  EXPECT_EQ(kept->step_spread, 0.125);
  const auto text = test::read_file(run.record_file());
  EXPECT_THAT(text, HasSubstr("\"high\": 0.5625"));
  EXPECT_THAT(text, HasSubstr("\"error\": 1.0")) << "twice what was measured";
}

// A spread of more than all is no reason to expect a negative time.
TEST(RunDirectory, NoIntervalOfAPredictionIsBelowZero) {
  const files::TemporaryDirectory parent;
  const auto run = RunDirectory::create(parent.path(), new_run("x"));
  auto record = run.read_record();
  record.comparison = run::Comparison{
      .step_predicted_seconds = 0.5, .step_measured_seconds = 0.25, .step_spread = 1.5};
  EXPECT_THAT(run::to_json(record), HasSubstr("\"low\": 0.2,"));
  EXPECT_THAT(run::to_json(record), HasSubstr("\"high\": 1.25"));
}

TEST(RunDirectory, AnErrorIsOfWhatWasMeasured) {
  EXPECT_DOUBLE_EQ(run::prediction_error(110, 100), 110.0 / 100 - 1);
  EXPECT_DOUBLE_EQ(run::prediction_error(50, 100), -0.5);
  EXPECT_DOUBLE_EQ(run::prediction_error(1, 0), 0) << "not known";
}

TEST(RunDirectory, TextThatIsNotUtf8DoesNotBreakTheRecord) {
  const files::TemporaryDirectory parent;
  const auto run = RunDirectory::create(parent.path(), new_run());
  run.update_record({RunStatus::failed, 1, "bad \xFF byte"});
  EXPECT_THAT(run.read_record().message, HasSubstr("bad "));
}

TEST(RunDirectory, EveryStateHasANameThatReadsBack) {
  for (const auto state : {RunStatus::planned, RunStatus::running, RunStatus::stopping,
                           RunStatus::done, RunStatus::failed, RunStatus::stopped}) {
    EXPECT_EQ(run::run_status_of(run::name_of(state)), state);
  }
  EXPECT_EQ(run::run_status_of("dead"), std::nullopt);
}

TEST(RunDirectory, OpenRefusesWhatIsNotARun) {
  const files::TemporaryDirectory place;
  EXPECT_THAT(
      test::error_text(Fault::config, [&] { RunDirectory::open(place.path() / "no"); }),
      HasSubstr("does not exist"));
  EXPECT_THAT(
      test::error_text(Fault::config, [&] { RunDirectory::open(place.path()); }),
      HasSubstr("it has no run.json"));
}

TEST(RunDirectory, ANewerFormatIsRefusedAndADamagedRecordIsNamed) {
  const files::TemporaryDirectory place;
  test::write_file(place.path() / "run.json", "{\"format\": 2}");
  EXPECT_THAT(
      test::error_text(Fault::config, [&] { RunDirectory::open(place.path()); }),
      HasSubstr("has format 2, this program reads up to 1"));
  for (const auto* text : {"", "{", "[]", "{\"format\": 1}", "{\"format\": \"x\"}"}) {
    test::write_file(place.path() / "run.json", text);
    const auto said =
        test::error_text(Fault::io, [&] { RunDirectory::open(place.path()); });
    EXPECT_THAT(said, HasSubstr("run.json: is damaged")) << text;
    EXPECT_THAT(said, ::testing::Not(HasSubstr("json.exception"))) << text;
  }
  test::write_file(place.path() / "run.json", "{\"format\": ");
  EXPECT_THAT(test::error_text(Fault::io, [&] { RunDirectory::open(place.path()); }),
              ::testing::EndsWith("it is not JSON from byte 12 on"));
}

TEST(RunDirectory, ListIsNewestFirstAndSaysWhatItSkipped) {
  const files::TemporaryDirectory parent;
  ManualClock clock;
  RunDirectory::create(parent.path(), new_run("b_old"), clock);
  clock.advance(std::chrono::seconds(1));
  RunDirectory::create(parent.path(), new_run("a_new"), clock);
  test::write_file(parent.path() / "notes.txt", "");
  std::filesystem::create_directory(parent.path() / "other");
  std::filesystem::create_directory(parent.path() / ".new-12345678");

  const auto list = run::list_runs(parent.path());
  ASSERT_EQ(list.runs.size(), 2U);
  EXPECT_EQ(list.runs[0].record.id, "a_new");
  EXPECT_EQ(list.runs[1].record.id, "b_old");
  ASSERT_EQ(list.skipped.size(), 2U);
  EXPECT_EQ(list.skipped[0].path.filename(), "notes.txt");
  EXPECT_EQ(list.skipped[1].reason, "is not a run directory (it has no run.json)");
}

// Files can be made in such a directory, but what is there already can not be counted.
TEST(RunDirectory, AParentThatCanNotBeListedIsAClearError) {
  const files::TemporaryDirectory place;
  std::filesystem::permissions(place.path(), std::filesystem::perms(0333));
  const int status = test::in_child([&] {
    if (!test::become_nobody()) return 1;
    const auto made =
        test::error_of([&] { RunDirectory::create(place.path(), new_run()); });
    if (!made || made->fault() != Fault::io) return 2;
    const auto listed = test::error_of([&] { run::list_runs(place.path()); });
    return listed && listed->fault() == Fault::io ? 0 : 3;
  });
  EXPECT_EQ(status, 0);
}

TEST(RunDirectory, TooFewOpenFilesLeaveNothingBehind) {
  const files::TemporaryDirectory place;
  // From none that is free on, until there are enough.
  for (rlim_t more = 0; more < 8; ++more) {
    const int status = test::in_child([&] {
      const int next = ::dup(0);
      const rlimit few{static_cast<rlim_t>(next) + more,
                       static_cast<rlim_t>(next) + more};
      ::close(next);
      ::setrlimit(RLIMIT_NOFILE, &few);
      std::optional<run::RunLock> lock;
      auto wanted = new_run();
      wanted.lock = &lock;
      return test::error_of(
                 [&] { RunDirectory::create(place.path() / "runs", wanted); })
                 ? 1
                 : 0;
    });
    if (status == 0) {
      EXPECT_GT(more, 0u);
      return;
    }
    EXPECT_EQ(status, 1);
    EXPECT_THAT(test::names_in(place.path()), IsEmpty()) << more;
  }
  FAIL() << "eight descriptors were too few";
}

TEST(RunDirectory, AMissingParentHasNoRuns) {
  EXPECT_THAT(run::list_runs("/no/such/place").runs, IsEmpty());
}

TEST(RunRecord, KnowsWhetherItsProcessIsGone) {
  auto record = run::record_of_this_process();
  EXPECT_TRUE(run::may_be_alive(record));
  EXPECT_GT(record.process_start, 0);
  record.process_start += 1;  // another process has this number now
  EXPECT_FALSE(run::may_be_alive(record));
  record = run::record_of_this_process();
  record.pid = 0x7FFFFFFF;  // above every pid_max
  EXPECT_FALSE(run::may_be_alive(record));
  record.host = "elsewhere";  // not ours to know
  EXPECT_TRUE(run::may_be_alive(record));
}

}  // namespace
}  // namespace lockstep
