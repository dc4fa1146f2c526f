// `lockstep runs` and `lockstep status` over run directories in every condition.
#include <nlohmann/json.hpp>

#include "lockstep/monitor/metrics.h"
#include "lockstep/run/events.h"
#include "lockstep/run/heartbeat.h"
#include "lockstep/run/run_directory.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using nlohmann::json;
using test::lockstep_in_process;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Runs : public ::testing::Test {
 protected:
  run::RunDirectory add(const std::string& name, run::RunRecord record) {
    clock_.advance(std::chrono::seconds(10));
    record.recipe = "r.yaml";
    return run::RunDirectory::create(
        parent_.path(),
        {.name = name, .record = record, .config_yaml = "", .plan_json = "{}"}, clock_);
  }

  run::RunDirectory add_trained(const std::string& name) {
    const auto run = add(name, run::record_of_this_process());
    run::EventWriter(run.events(), clock_)
        .write("started", {{"total_steps", std::int64_t{200}}});
    monitor::MetricsWriter metrics(run.metrics(), clock_);
    metrics.write({.step = 50, .loss = 0.75, .more = {{"lr", 0.001}}});
    metrics.write({.step = 50,
                   .split = monitor::Split::eval,
                   .loss = 0.5,
                   .more = {{"accuracy", 0.875}}});
    run::HeartbeatWriter(run.heartbeat(), {0, 1}, clock_)
        .beat(60, run::Phase::training);
    clock_.advance(std::chrono::seconds(65));
    run.update_record({run::RunStatus::done, 0, ""}, clock_);
    return run;
  }

  static run::RunRecord of_a_dead_process() {
    auto record = run::record_of_this_process();
    record.pid = 0x7FFFFFFF;
    return record;
  }

  std::string dir() const { return parent_.path().string(); }

  files::TemporaryDirectory parent_;
  ManualClock clock_;
};

TEST_F(Runs, TheTableHasARowForEveryRun) {
  add("first", run::record_of_this_process())
      .update_record({run::RunStatus::stopped, 130, ""}, clock_);
  add_trained("second");
  const auto outcome = lockstep_in_process({"runs", dir()});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("ID      STATE    STARTED"));
  EXPECT_THAT(outcome.out,
              HasSubstr("second  done     2023-11-14 22:13:40     01:05    60  0.7500  "
                        "accuracy 0.8750  r.yaml\n"));
  EXPECT_THAT(outcome.out, HasSubstr("first   stopped  2023"));
  EXPECT_LT(outcome.out.find("second"), outcome.out.find("first"));
}

// The task of a run says what counts, whatever else was measured.
TEST_F(Runs, ShowThePrimaryMetricOfTheirTask) {
  const auto run = add("text", run::record_of_this_process());
  monitor::MetricsWriter(run.metrics(), clock_)
      .write({.step = 50,
              .split = monitor::Split::eval,
              .loss = 3.0,
              .more = {{"primary", std::string("perplexity")},
                       {"perplexity", 20.5},
                       {"accuracy", 0.125}}});
  const auto table = lockstep_in_process({"runs", dir()}).out;
  EXPECT_THAT(table, HasSubstr("perplexity 20.5000"));
  EXPECT_THAT(table, ::testing::Not(HasSubstr("accuracy")));
}

TEST_F(Runs, SweepsTagsAndTypedKnobsAreShown) {
  auto record = run::record_of_this_process();
  record.command = "lockstep find-lr r.yaml optim.name=sgd --run-dir runs/a.b=c";
  add("sweep", record);
  record.command = "lockstep train r.yaml optim.lr=3e-4 batch.global=64";
  const auto tagged = add("tagged", record);
  test::write_file(tagged.config(), "run:\n  tags: [baseline, \"a b\"] # recipe\n");
  const auto table = lockstep_in_process({"runs", dir()}).out;
  EXPECT_THAT(table, HasSubstr("(find-lr) r.yaml optim.name=sgd\n"));
  EXPECT_THAT(table,
              HasSubstr("r.yaml #baseline #a b optim.lr=3e-4 batch.global=64\n"));
  const auto only = [&](const std::vector<std::string>& words) {
    auto all = words;
    all.insert(all.begin(), {"runs", dir(), "--json"});
    std::string ids;
    const auto report = json::parse(lockstep_in_process(all).out);
    for (const auto& run : report.at("runs")) {
      ids += run.at("id").get<std::string>() + " ";
    }
    return ids;
  };
  EXPECT_EQ(only({"--kind", "find-lr"}), "sweep ");
  EXPECT_EQ(only({"--kind", "train"}), "tagged ");
  EXPECT_EQ(only({"--tag", "a b"}), "tagged ");
  EXPECT_EQ(only({"--recipe", "r.y"}), "tagged sweep ");
  EXPECT_EQ(only({"--state", "done"}), "");
  EXPECT_EQ(only({"--reverse"}), "sweep tagged ");
}

TEST_F(Runs, AnyMetricIsAColumnAndAnOrder) {
  add("none", run::record_of_this_process());
  add_trained("first");
  const auto second = add_trained("second");
  monitor::MetricsWriter(second.metrics(), clock_)
      .write({.step = 80,
              .split = monitor::Split::eval,
              .loss = 0.25,
              .more = {{"accuracy", 0.5}}});
  const auto table = lockstep_in_process({"runs", dir(), "--metric", "accuracy",
                                          "--metric", "lr", "--sort", "accuracy"})
                         .out;
  EXPECT_THAT(table, HasSubstr("accuracy  lr"));
  EXPECT_LT(table.find("\nsecond"), table.find("\nfirst")) << table;
  EXPECT_LT(table.find("\nfirst"), table.find("\nnone")) << "without it: last";
  const auto wrong = lockstep_in_process({"runs", dir(), "--metric", "acuracy"});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean 'accuracy'?"));
}

TEST_F(Runs, StatusHasHumanUnitsAndKeepsToTheWidth) {
  const auto run = add_trained("x");
  monitor::MetricsWriter(run.metrics(), clock_)
      .write({.step = 90,
              .loss = 0.5,
              .more = {{"memory_bytes", 3.0 * (1LL << 30)},
                       {"step_seconds", 0.0123},
                       {"data_wait_seconds", 0.5},
                       {"mfu_ratio", 0.4125},
                       {"samples_per_second", 12345.0}}});
  run::EventWriter(run.events(), clock_)
      .write("alert", {{"text", std::string("a long story ") + std::string(200, 'x')}});
  const auto out = lockstep_in_process({"status", "--dir", dir()}).out;
  EXPECT_THAT(out, HasSubstr("memory 3.0 GiB"));
  EXPECT_THAT(out, HasSubstr("step time 12.3 ms"));
  EXPECT_THAT(out, HasSubstr("data wait 500.0 ms"));
  EXPECT_THAT(out, HasSubstr("mfu 41.2 %"));
  EXPECT_THAT(out, HasSubstr("12,345 samples/s"));
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("run ")) continue;  // a path is not broken
    EXPECT_LE(line.size(), 80U) << line;
  }
}

TEST_F(Runs, JsonHasTheSameFacts) {
  add_trained("x");
  test::write_file(parent_.path() / "notes.txt", "");
  const auto report = json::parse(lockstep_in_process({"runs", dir(), "--json"}).out);
  ASSERT_EQ(report.at("runs").size(), 1U);
  const auto& run = report.at("runs")[0];
  EXPECT_EQ(run.at("id"), "x");
  EXPECT_EQ(run.at("state"), "done");
  EXPECT_EQ(run.at("exit"), 0);
  EXPECT_EQ(run.at("step"), 60);
  EXPECT_EQ(run.at("total_steps"), 200);
  EXPECT_EQ(run.at("duration_seconds"), 65.0);
  EXPECT_EQ(run.at("train").at("loss"), 0.75);
  EXPECT_EQ(run.at("eval").at("accuracy"), 0.875);
  EXPECT_EQ(report.at("skipped").size(), 1U);
}

TEST_F(Runs, OneThatWentOnGoesAsFarAsItLastSaid) {
  const auto made = add_trained("x");
  run::EventWriter(made.events(), clock_)
      .write("started", {{"total_steps", std::int64_t{300}}});
  const auto report = json::parse(lockstep_in_process({"runs", dir(), "--json"}).out);
  EXPECT_EQ(report.at("runs")[0].at("total_steps"), 300);
}

TEST_F(Runs, ARunWhoseProcessIsGoneHasFailed) {
  const auto run = add("lost", of_a_dead_process());
  run.update_record({run::RunStatus::running, std::nullopt, ""});
  EXPECT_THAT(lockstep_in_process({"runs", dir()}).out,
              HasSubstr("failed (process is gone)"));
  const auto report =
      json::parse(lockstep_in_process({"status", "--dir", dir(), "--json"}).out);
  EXPECT_EQ(report.at("state"), "failed");
  EXPECT_EQ(report.at("process_is_gone"), true);
}

TEST_F(Runs, AFinishedRunOfADeadProcessStaysAsItEnded) {
  const auto run = add("ended", of_a_dead_process());
  run.update_record({run::RunStatus::stopped, 130, "stopped by SIGINT"});
  EXPECT_THAT(lockstep_in_process({"runs", dir()}).out, HasSubstr("stopped"));
}

TEST_F(Runs, NoRunsIsNotAnError) {
  const auto outcome = lockstep_in_process({"runs", "/no/such/place"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, HasSubstr("no runs in '/no/such/place'"));
}

TEST_F(Runs, SkippedEntriesAreNamedOnStandardError) {
  add("x", {});
  std::filesystem::create_directory(parent_.path() / "other");
  const auto outcome = lockstep_in_process({"runs", dir()});
  EXPECT_THAT(outcome.err, HasSubstr("other"));
  EXPECT_THAT(outcome.err, HasSubstr("(it has no run.json)\n"));
}

TEST_F(Runs, ARunThatCanNotBeViewedDoesNotHideTheOthers) {
  add_trained("good");
  const auto bad = add_trained("bad");
  std::filesystem::remove(bad.metrics());
  std::filesystem::create_directory(bad.metrics());
  const auto outcome = lockstep_in_process({"runs", dir()});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("good  done"));
  EXPECT_THAT(outcome.err, HasSubstr("skipped " + bad.path().string() + ": "));
  const auto report = json::parse(lockstep_in_process({"runs", dir(), "--json"}).out);
  EXPECT_EQ(report.at("runs").size(), 1U);
  EXPECT_EQ(report.at("skipped").size(), 1U);
}

TEST_F(Runs, NamesThatAreNotUtf8DoNotBreakTheJson) {
  test::write_file(parent_.path() / "caf\xE9 \x1b[31m", "");
  const auto outcome = lockstep_in_process({"runs", dir(), "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out).at("skipped").size(), 1U);
  EXPECT_THAT(lockstep_in_process({"runs", dir()}).err, HasSubstr("\\x1b[31m: "));
}

TEST_F(Runs, TheEnvironmentMayNameTheDirectory) {
  add_trained("mine");
  const std::vector<std::pair<std::string, std::string>> environment = {
      {"LOCKSTEP_RUN_DIR", dir()}};
  EXPECT_THAT(lockstep_in_process({"runs"}, environment).out, HasSubstr("mine  done"));
  EXPECT_THAT(lockstep_in_process({"status"}, environment).out,
              HasSubstr("run        mine  ("));
  EXPECT_THAT(lockstep_in_process({"doctor"}, environment).out,
              HasSubstr(" free in " + dir() + "\n"));
}

TEST_F(Runs, StatusShowsTheNewestByDefault) {
  add_trained("old");
  add_trained("new");
  const auto outcome = lockstep_in_process({"status", "--dir", dir()});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.out, HasSubstr("run        new  ("));
  EXPECT_THAT(outcome.out, HasSubstr("state      done\n"));
  EXPECT_THAT(outcome.out, HasSubstr("step       60/200 (30 %)\n"));
  EXPECT_THAT(outcome.out, HasSubstr("train      step 50  loss 0.75  lr 0.001\n"));
  EXPECT_THAT(outcome.out, HasSubstr("eval       step 50  loss 0.5  accuracy 0.875\n"));
  EXPECT_THAT(outcome.out, HasSubstr("started  total_steps 200\n"));
}

TEST_F(Runs, StatusFindsARunByIdOrPath) {
  add_trained("old");
  add_trained("new");
  const auto by_id = lockstep_in_process({"status", "old", "--dir", dir()});
  EXPECT_THAT(by_id.out, HasSubstr("run        old  ("));
  EXPECT_EQ(lockstep_in_process({"status", dir() + "/old"}).out, by_id.out);
}

TEST_F(Runs, StatusOfALiveRunHasItsHeartbeat) {
  const auto run = add("live", run::record_of_this_process());
  run.update_record({run::RunStatus::running, std::nullopt, ""});
  run::HeartbeatWriter(run.heartbeat(), {0, 1}).beat(7, run::Phase::evaluating);
  const auto outcome = lockstep_in_process({"status", "live", "--dir", dir()});
  EXPECT_THAT(outcome.out, HasSubstr("state      running\n"));
  EXPECT_THAT(outcome.out, HasSubstr(" s ago, evaluating\n"));
  EXPECT_THAT(outcome.out, HasSubstr("step       7\n"));
}

TEST_F(Runs, StatusOfAnUnknownRunGetsASuggestion) {
  add_trained("baseline");
  const auto outcome = lockstep_in_process({"status", "basline", "--dir", dir()});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean 'baseline'?"));
  EXPECT_EQ(lockstep_in_process({"status", "--dir", "/no/such/place"}).status, 2);
}

TEST_F(Runs, StatusOfADamagedRunNamesTheFile) {
  test::write_file(parent_.path() / "bad" / "run.json", "{");
  const auto outcome = lockstep_in_process({"status", "bad", "--dir", dir()});
  EXPECT_EQ(outcome.status, 3);
  EXPECT_THAT(outcome.err, HasSubstr("bad/run.json: is damaged"));
}

}  // namespace
}  // namespace lockstep
