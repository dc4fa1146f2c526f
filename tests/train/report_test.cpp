#include "lockstep/train/report.h"

#include <nlohmann/json.hpp>
#include <signal.h>

#include "lockstep/models/model.h"
#include "lockstep/train/device.h"
#include "tests/run/run_rig.h"
#include "tests/support/support.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;

Result some_result() {
  Result result;
  result.steps = 2345;
  result.samples = 300160;
  result.train_seconds = 100;
  result.seconds = 111;
  result.train_loss = 0.1;
  result.eval =
      task::Means{0.25, {{"accuracy", 0.9123, task::Better::more, true}}, 10000};
  result.primary = "accuracy";
  result.best = 0.92;
  result.memory = {{512 << 20, 600 << 20, 1 << 30}};
  result.weights = "runs/1/model.safetensors";
  return result;
}

TEST(Report, TheResultTableSaysWhatCameOfIt) {
  const auto table = to_table(some_result());
  EXPECT_THAT(table, HasSubstr("test accuracy  91.23 %"));
  EXPECT_THAT(table, HasSubstr("tested on      10,000 samples"));
  EXPECT_THAT(table, HasSubstr("steps          2,345 (300,160 samples)"));
  EXPECT_THAT(table, HasSubstr("3,002 samples/s"));
  EXPECT_THAT(table, HasSubstr("runs/1/model.safetensors"));
}

// Numbers of one attempt and of all are never in one breath.
TEST(Report, AResumedRunSaysWhatThisAttemptTookAndWhatAllDid) {
  auto result = some_result();
  EXPECT_THAT(to_table(result),
              HasSubstr("time           111.0 s, training time 100.0 s\n"));
  result.seconds = 11;
  result.earlier_train_seconds = 91;
  result.resumed_at = 2245;
  result.forward_seconds = 0.2;
  result.backward_seconds = 0.4;
  EXPECT_THAT(
      to_table(result),
      HasSubstr("time           11.0 s since resuming, training time 9.0 s; 100.0 "
                "s over all attempts\n"));
  EXPECT_THAT(to_table(result), HasSubstr("forward 2.00 ms, backward 4.00 ms a step"));
  const auto json = nlohmann::json::parse(to_json(result));
  EXPECT_EQ(json["train_seconds"], 100);
  EXPECT_EQ(json["earlier_train_seconds"], 91);
}

// What was evaluated is in another file than the last weights.
TEST(Report, OfAnAverageBothFilesAreNamed) {
  auto result = some_result();
  EXPECT_THAT(to_table(result), testing::Not(HasSubstr("average")));
  result.average = "runs/1/ema.safetensors";
  result.eval_is_of_average = true;
  const auto table = to_table(result);
  EXPECT_THAT(table, HasSubstr("test accuracy  91.23 % (of the average, ema)"));
  EXPECT_THAT(table, HasSubstr("weights        runs/1/model.safetensors"));
  EXPECT_THAT(table, HasSubstr("average        runs/1/ema.safetensors"));
  const auto json = nlohmann::json::parse(to_json(result));
  EXPECT_EQ(json["eval_of"], "average");
  EXPECT_EQ(json["average"], "runs/1/ema.safetensors");
}

TEST(Report, AStoppedRunSaysSo) {
  auto result = some_result();
  result.stopped_by = SIGINT;
  EXPECT_THAT(to_table(result), HasSubstr("stopped by SIGINT after step 2345"));
}

TEST(Report, JsonHasTheSameNumbers) {
  const auto json = nlohmann::json::parse(to_json(some_result()));
  EXPECT_EQ(json["eval_accuracy"], 0.9123);
  EXPECT_EQ(json["eval_samples"], 10000);
  EXPECT_EQ(json["steps"], 2345);
  EXPECT_EQ(json["state"], "done");
  EXPECT_EQ(json["samples_per_second"], 3001.6);
}

// What the reporter writes of `report`, in a run with this plan.
monitor::Metrics written(const TrainReport& report, const std::string& plan = "{}",
                         const std::optional<CheckpointReport>& before = {}) {
  const files::TemporaryDirectory folder;
  run::NewRun wanted;
  wanted.name = "r";
  wanted.plan_json = plan;
  const auto run = run::RunDirectory::create(folder.path(), wanted);
  monitor::Console console({.write = [](std::string_view) {}});
  Reporter reporter({run, console}, {.sinks = {config::Sink::jsonl}}, {});
  if (before) reporter.checkpoint(*before);
  reporter.train(report);
  return monitor::read_metrics(run.metrics()).at(0);
}

TrainReport ten_steps() {
  TrainReport report{.step = 10, .means = {0.5, {}, 640}, .seconds = 2, .steps = 10};
  report.ranks.resize(1);
  return report;
}

TEST(Report, HasTheTimeOfAStep) {
  const auto metrics = written(ten_steps());
  EXPECT_EQ(metrics.find("step_seconds"), 0.2);
  EXPECT_EQ(metrics.find("samples_per_second"), 320);
  for (const auto* name : {"tokens_per_second", "mfu_ratio", "checkpoint_seconds"}) {
    EXPECT_EQ(metrics.find(name), std::nullopt) << name;
  }
}

TEST(Report, OfTokensHasBothRates) {
  auto report = ten_steps();
  report.targets_per_sample = 64;
  report.targets_are_tokens = true;
  const auto metrics = written(report);
  EXPECT_EQ(metrics.find("tokens_per_second"), 320);
  EXPECT_EQ(metrics.find("samples_per_second"), 5);
}

TEST(Report, HasTheShareOfThePeakWhereThePlanKnowsIt) {
  EXPECT_EQ(written(ten_steps(), R"({"efficiency": {"flops_per_sample": 5e9,
                                                    "peak_flops": 4e12}})")
                .find("mfu_ratio"),
            0.4);  // 320 samples a second of 5 GFLOP, of 4 TFLOP/s
  for (const auto* plan :
       {"{", R"({"efficiency": 3})", R"({"efficiency": {"flops_per_sample": 5e9}})",
        R"({"efficiency": {"flops_per_sample": 5e9, "peak_flops": 0}})"}) {
    EXPECT_EQ(written(ten_steps(), plan).find("mfu_ratio"), std::nullopt) << plan;
  }
}

TEST(Report, HasTheTimeOfTheLastCheckpoint) {
  const CheckpointReport saved{.step = 5, .saved = true, .seconds = 1.5};
  EXPECT_EQ(written(ten_steps(), "{}", saved).find("checkpoint_seconds"), 1.5);
  const CheckpointReport failed{.step = 5, .saved = false, .text = "full"};
  EXPECT_EQ(written(ten_steps(), "{}", failed).find("checkpoint_seconds"),
            std::nullopt);
}

// A machine that is a little uneven would fill the console with one line a report.
TEST(Report, AStragglerIsWarnedOfOnceAndAgainWhenTwiceAsBad) {
  const test::RunRig rig;
  monitor::Console console({.write = [](std::string_view) {}});
  Reporter reporter({rig.run, console}, {.sinks = {}}, {.rank = 0, .ranks = 2});
  std::vector<std::string> warnings;
  log::start({.writer = [&](log::Level, std::string_view line) {
    warnings.emplace_back(line);
  }});
  for (const double late : {0.3, 0.4, 0.25, 0.59, 0.6, 0.7}) {
    auto report = ten_steps();
    report.straggler = Straggler{.rank = 1, .late_seconds = late, .cause = "compute"};
    reporter.straggler(report);
  }
  log::start({});
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_THAT(warnings[0], HasSubstr("rank 1 is a straggler: the others wait 30 ms a "
                                     "step (15 % of the time), cause: compute"));
  EXPECT_THAT(warnings[1], HasSubstr("60 ms a step (30 % of the time)"));
}

// "wandb sync ..." is no progress: it is said where `console` is not among the sinks.
TEST(Report, WhatSinksHaveToSayNeedsNoConsole) {
  for (const auto verbosity : {config::Verbosity::normal, config::Verbosity::quiet}) {
    const files::TemporaryDirectory folder;
    run::NewRun wanted;
    wanted.name = "r";
    const auto run = run::RunDirectory::create(folder.path(), wanted);
    std::string shown;
    monitor::Console console({.write = [&](std::string_view text) { shown += text; }});
    config::MonitorConfig monitor{.sinks = {config::Sink::wandb}};
    monitor.verbosity = verbosity;
    Reporter reporter({run, console}, monitor, {});
    reporter.started(1, 1);
    reporter.train(ten_steps());
    reporter.finished({});
    const bool quiet = verbosity == config::Verbosity::quiet;
    EXPECT_EQ(shown.find("wandb sync ") == std::string::npos, quiet) << shown;
  }
}

TEST(Report, GpusOfDevicesAreTheirNumbers) {
  EXPECT_THAT(gpu_numbers({torch::Device(torch::kCUDA, 2), torch::kCPU,
                           torch::Device(torch::kCUDA, 0)}),
              testing::ElementsAre(2, 0));
}

TEST(Report, TheModelTableAddsUp) {
  const auto table = model_table(*models::build({.name = "cnn"}, {{1, 28, 28}, 10}));
  EXPECT_THAT(table, HasSubstr("conv1"));
  EXPECT_THAT(table, HasSubstr("824,458"));
  EXPECT_THAT(table, HasSubstr("3.1 MiB"));
}

// Of several losses each is shown, and of the metrics the one that counts.
TEST(Report, LinesShowEachLossAndThePrimaryMetric) {
  const test::RunRig rig;
  std::string shown;
  monitor::Console console({.write = [&](std::string_view text) { shown += text; }});
  config::MonitorConfig config;
  config.sinks = {config::Sink::console, config::Sink::jsonl};
  Reporter reporter({rig.run, console}, config, {});
  reporter.primary({.name = "rmse", .better = task::Better::less});
  reporter.started(10, 1);
  const task::Means means{1.5,
                          {{"loss_organ", 1.0, task::Better::less},
                           {"loss_findings", 0.5, task::Better::less},
                           {"accuracy", 0.25, task::Better::more, true},
                           {"rmse", 3.5, task::Better::less}},
                          64};
  reporter.eval({.step = 10, .epoch = 1, .means = means, .seconds = 1});
  for (const auto* part :
       {"loss 1.5000", "rmse 3.5", "loss_organ 1", "loss_findings 0.5"}) {
    EXPECT_THAT(shown, HasSubstr(part));
  }
  EXPECT_LT(shown.find("rmse"), shown.find("accuracy")) << "what counts comes first";
  const auto lines = monitor::read_metrics(rig.run.metrics());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(monitor::primary_of(lines[0])->name, "rmse");
}

}  // namespace
}  // namespace lockstep::train
