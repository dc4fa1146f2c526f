// `lockstep plan`, and what `lockstep train` makes of predictions.
#include "lockstep/cli/detail/plan.h"

#include <nlohmann/json.hpp>

#include "lockstep/planner/history.h"
#include "lockstep/planner/shipped.h"
#include "lockstep/run/run_directory.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using run::RunDirectory;
using test::lockstep_in_process;
using test::Rig;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A worker that knows its model, and reports two steps of 0.5 s and 3 GB.
constexpr char kWorker[] = R"sh(#!/bin/sh
if [ "$1" = --describe ]; then
  echo asked >> "$(dirname "$0")/asked"
  cat "$(dirname "$0")/model.json"
  exit 0
fi
now=$(date +%s.0)
for step in 1 50; do
  echo "{\"step\":$step,\"split\":\"train\",\"loss\":1.0,\"time\":9$now,\
\"step_seconds\":0.5,\"memory_peak_bytes\":3000000000}" >> "$2/metrics.jsonl"
done
env > "$2/environment"
)sh";

class PlannedRig {
 public:
  PlannedRig() {
    const auto place = rig_.path("bin/lockstep_worker");
    test::write_file(place, kWorker);
    auto model = planner::shipped_model("gpt2-124m");
    model.units[1].count = 1;  // so that it fits anywhere
    model.sequence = 0;
    model.units[2].num_outputs = 10;
    model.units[2].kept = {};
    model.backward = model.forward = {};
    test::write_file(rig_.path("bin/model.json"), run::to_json(model));
  }
  const Rig& operator*() const { return rig_; }
  const Rig* operator->() const { return &rig_; }

  nlohmann::json read(const std::string& file) const {
    return nlohmann::json::parse(test::read_file(rig_.path(file)));
  }
  std::vector<std::string> machines() const {
    return test::names_in(rig_.path("state/lockstep/machines"));
  }

 private:
  Rig rig_;
};

TEST(PlanCommand, PlansAShippedModelForAShippedMachine) {
  const auto outcome = lockstep_in_process(
      {"plan", "--model", "gpt2-1.5b", "--hardware", "dgx-h100", "batch.global=512"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("plan for gpt2-1.5b on 8 x NVIDIA H100"),
                                 HasSubstr("parallel.strategy = ddp"),
                                 HasSubstr("% faster, but sharding for less than 5 %"),
                                 HasSubstr("what if"), HasSubstr("two more GPUs")));
}

TEST(PlanCommand, AllShowsEveryCandidate) {
  const std::vector<std::string> words{"plan", "--model", "gpt2-124m", "--hardware",
                                       "2xrtx4090"};
  auto more = words;
  more.emplace_back("--all");
  EXPECT_GT(lockstep_in_process(more).out.size(),
            2 * lockstep_in_process(words).out.size());
}

TEST(PlanCommand, JsonHoldsChoicesCandidatesAndPredictions) {
  const auto outcome = lockstep_in_process(
      {"plan", "--model", "gpt2-124m", "--hardware", "4xl4", "--json"});
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(document["version"], 1);
  EXPECT_EQ(document["model"], "gpt2-124m");
  EXPECT_GT(document["choices"].size(), 10U);
  EXPECT_GT(document["candidates"].size(), 10U);
  EXPECT_EQ(document["candidates"][0]["lost"], "");
  EXPECT_GT(document["prediction"]["memory"]["peak_bytes"], 1e9);
  EXPECT_GT(document["prediction"]["time"]["step_seconds"], 0);
  EXPECT_DOUBLE_EQ(document["efficiency"]["peak_flops"], 4 * 121e12);
  EXPECT_GT(document["efficiency"]["flops_per_sample"], 6e11);
  EXPECT_EQ(document["scaling"].size(), 3U);
  EXPECT_EQ(document["correction"]["runs"], 0);
}

TEST(PlanCommand, ARefusalComesWithTheCandidates) {
  const auto outcome =
      lockstep_in_process({"plan", "--model", "gpt2-1.5b", "--hardware", "4xl4",
                           "batch.global=64", "parallel.strategy=ddp"});
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("why not"), HasSubstr("was requested"),
                                 HasSubstr("a rank > 0.8 x 22.5 GiB")));
}

TEST(PlanCommand, ReadsFilesOfMachinesAndModels) {
  const Rig rig;
  test::write_file(rig.path("node.json"),
                   R"({"gpus": [{"name": "NVIDIA L4", "memory_total_bytes": "24GB",
                                 "compute_major": 8, "compute_minor": 9}]})");
  test::write_file(rig.path("model.json"),
                   run::to_json(planner::shipped_model("gpt2-124m")));
  const auto output = rig.run({"plan", "--describe", "model.json", "--hardware",
                               "node.json", "batch.global=16"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("1 x NVIDIA L4"));
  EXPECT_THAT(rig.run({"plan", "--describe", "no.json"}).err, HasSubstr("no.json"));
  EXPECT_THAT(rig.run({"plan", "--model", "gpt2-124m", "--hardware", "4xl5"}).err,
              HasSubstr("did you mean '4xl4'?"));
  EXPECT_THAT(rig.run({"plan"}).err, HasSubstr("name a recipe, or a model"));
  EXPECT_THAT(rig.run({"plan", "--model", "gpt2-124m", "--describe", "x.json"}).err,
              HasSubstr("give one of them"));
}

TEST(PlanCommand, WithoutAWorkerItSaysSoAndUsesRules) {
  const Rig rig;
  std::filesystem::remove(rig.path("bin/lockstep_worker"));
  const auto output = rig.run({"plan", "recipe.yaml"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.out,
              AllOf(HasSubstr("plan for an unknown model"),
                    HasSubstr("no prediction: the model is not known: train: '"),
                    HasSubstr("lockstep_worker' does not exist")));
}

TEST(PlanCommand, AsksTheWorkerOnceForAModel) {
  const PlannedRig rig;
  for (int i = 0; i < 3; ++i) {
    const auto output = rig->run({"plan", "recipe.yaml", "batch.global=4"});
    EXPECT_EQ(output.end.exit_status, 0) << output.err;
    EXPECT_THAT(output.out, HasSubstr("plan for gpt2-124m"));
  }
  EXPECT_EQ(test::read_file(rig->path("bin/asked")), "asked\n");
  rig->run({"plan", "recipe.yaml", "batch.global=4", "model.hidden=32"});
  EXPECT_EQ(test::read_file(rig->path("bin/asked")), "asked\nasked\n")
      << "another width is another model";
  rig->run({"plan", "recipe.yaml", "batch.global=4", "task.label_smoothing=0.1"});
  EXPECT_EQ(test::read_file(rig->path("bin/asked")), "asked\nasked\nasked\n")
      << "and so is another loss, or an adapter";
}

TEST(PlanCommand, ARecipeThatTheWorkerCanNotDescribeIsStillTrained) {
  const Rig rig("exit 0\n");  // it answers --describe with an error
  const auto output = rig.run({"train", "recipe.yaml"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr("plan note: no prediction: the model is not known: "
                                    "lockstep_worker --describe ended with exit status "
                                    "2: no models here"));
}

TEST(TrainPrediction, OfABusyMachineHasNoErrorOfTheTime) {
  run::Comparison comparison{.memory_predicted_bytes = 2e9,
                             .memory_measured_bytes = 1e9,
                             .step_predicted_seconds = 0.58,
                             .step_measured_seconds = 1};
  EXPECT_THAT(cli::comparison_text(comparison),
              AllOf(HasSubstr("-42 %"), HasSubstr("+100 %")));
  comparison.others_share = 0.5;
  EXPECT_THAT(cli::comparison_text(comparison),
              AllOf(HasSubstr("(busy)"), HasSubstr("+100 %"), Not(HasSubstr("-42 %"))));
}

TEST(TrainPrediction, IsPrintedComparedAndRemembered) {
  const PlannedRig rig;
  const std::vector<std::string> words{"train", "recipe.yaml", "batch.global=4",
                                       "parallel.device=cpu", "planner.learn=always"};
  const auto first = rig->run(words);
  EXPECT_EQ(first.end.exit_status, 0) << first.err;
  EXPECT_THAT(first.err, AllOf(HasSubstr("plan predicted: "),
                               HasSubstr("memory of a rank"), HasSubstr("2.8 GiB"),
                               HasSubstr("500.0 ms"), Not(HasSubstr("earlier run"))));
  const auto record = RunDirectory::open(rig->path("runs/0001")).read_record();
  ASSERT_TRUE(record.comparison);
  EXPECT_DOUBLE_EQ(record.comparison->step_measured_seconds, 0.5);
  EXPECT_DOUBLE_EQ(record.comparison->memory_measured_bytes, 3e9);
  EXPECT_GT(record.comparison->step_predicted_seconds, 0);
  const auto plan = rig.read("runs/0001/plan.json");
  EXPECT_TRUE(plan.contains("prediction"));
  EXPECT_TRUE(plan.contains("candidates"));
  ASSERT_EQ(rig.machines().size(), 1U);

  // The same again is now predicted as it was measured.
  const auto second = rig->run(words);
  EXPECT_THAT(second.err, HasSubstr(" a step by 1 earlier run)"));
  const auto corrected = RunDirectory::open(rig->path("runs/0002")).read_record();
  EXPECT_NEAR(corrected.comparison->step_predicted_seconds, 0.5, 0.01);
  EXPECT_NEAR(corrected.comparison->memory_predicted_bytes, 3e9, 1e7);
  const auto past = planner::past_from_json(test::read_file(
      rig->path("state/lockstep/machines/" + rig.machines()[0] + "/predictions.json")));
  EXPECT_EQ(past.size(), 2U);
}

TEST(TrainPrediction, ThatCanNotBeKeptFailsNoRun) {
  const PlannedRig rig;
  test::write_file(rig->path("state"), "a file where a directory should be");
  const auto output =
      rig->run({"train", "recipe.yaml", "batch.global=4", "planner.learn=always"});
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.err, AllOf(HasSubstr("memory of a rank"),
                                HasSubstr("the prediction was not kept")));
  const auto record = RunDirectory::open(rig->path("runs/0001")).read_record();
  EXPECT_EQ(record.state, run::RunStatus::done);
}

TEST(TrainPrediction, WithoutTheFileOfMetricsItSaysWhyNothingIsCompared) {
  const PlannedRig rig;
  const auto keeps_none = str(kWorker, "rm -f \"$2/metrics.jsonl\"\n");
  test::write_file(rig->path("bin/lockstep_worker"), keeps_none);
  const std::vector<std::string> words{"train", "recipe.yaml", "batch.global=4",
                                       "monitor.sinks=console"};
  const auto output = rig->run(words);
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr("lockstep: the prediction is not compared with "
                                    "what was measured: monitor.sinks has no jsonl"));
  EXPECT_THAT(output.err, Not(HasSubstr("memory of a rank")));
}

// What is measured of a CPU is the process, and replicas are threads of one; with a
// limit it is tensors, which the worker has divided already.
TEST(TrainPrediction, ReplicasOnACpuShareWhatTheirProcessTakes) {
  for (const bool limited : {false, true}) {
    const PlannedRig rig;
    std::vector<std::string> words{"train",
                                   "recipe.yaml",
                                   "batch.global=4",
                                   "parallel.device=cpu",
                                   "parallel.strategy=data_parallel",
                                   "parallel.ranks=2",
                                   "planner.learn=always"};
    if (limited) words.emplace_back("memory.host_limit=16GiB");
    const auto output = rig->run(words);
    EXPECT_EQ(output.end.exit_status, 0) << output.err;
    const auto record = RunDirectory::open(rig->path("runs/0001")).read_record();
    ASSERT_TRUE(record.comparison) << output.err;
    const double share = limited ? 3e9 : 1.5e9;
    EXPECT_DOUBLE_EQ(record.comparison->memory_measured_bytes, share);
    const auto past = planner::past_from_json(test::read_file(rig->path(
        "state/lockstep/machines/" + rig.machines().at(0) + "/predictions.json")));
    EXPECT_DOUBLE_EQ(past.at(0).measured_bytes, share);
  }
}

TEST(TrainPrediction, QuietShowsNoneOfIt) {
  const PlannedRig rig;
  EXPECT_THAT(rig->run({"train", "recipe.yaml", "batch.global=4", "-q"}).err,
              Not(HasSubstr("predicted")));
}

TEST(TrainPrediction, AStrategyThatDoesNotFitIsRefusedBeforeARunIsMade) {
  const PlannedRig rig;
  auto model = planner::shipped_model("gpt2-1.5b");
  model.units[1].count = 90'000;  // 11 TB of parameters alone
  test::write_file(rig->path("bin/model.json"), run::to_json(model));
  const auto output = rig->run({"train", "recipe.yaml", "parallel.strategy=single"});
  EXPECT_NE(output.end.exit_status, 0);
  EXPECT_THAT(output.err, AllOf(HasSubstr("parallel.strategy: single of gpt2-1.5b"),
                                HasSubstr("parameters 10")));
  EXPECT_FALSE(std::filesystem::exists(rig->path("runs")));
}

TEST(TrainPrediction, RanksGetTheVariablesOfThePlanUnlessTheyAreSet) {
  const PlannedRig rig;
  auto command = rig->command({"train", "recipe.yaml", "batch.global=4",
                               "parallel.threads=3", "parallel.device=cpu"});
  process::run(command, test::kPatience);
  EXPECT_THAT(test::read_file(rig->path("runs/0001/environment")),
              HasSubstr("OMP_NUM_THREADS="));
  command.environment.emplace_back("OMP_NUM_THREADS", "7");
  process::run(command, test::kPatience);
  EXPECT_THAT(test::read_file(rig->path("runs/0002/environment")),
              HasSubstr("OMP_NUM_THREADS=7\n"));
}

TEST(Plan, AWorkerThatIsKilledOverTheModelIsOneLineAndNoSuccess) {
  const Rig rig;
  test::write_file(rig.path("bin/lockstep_worker"), "#!/bin/sh\nkill -KILL $$\n");
  const auto output = rig.run({"plan", "recipe.yaml"});
  EXPECT_EQ(output.end.exit_status, 3);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(
      output.err,
      HasSubstr("lockstep: error: plan: the model is not known: lockstep_worker "
                "--describe ended with signal 9 (SIGKILL); the kernel's OOM "
                "killer may have ended it"));
}

// The recipe is handed over without a file: nothing can be left behind.
TEST(Plan, AskingForAModelNeedsNoTemporaryFile) {
  const Rig rig;
  test::write_file(rig.path("bin/lockstep_worker"),
                   "#!/bin/sh\ncat \"$2\" > described; ls \"$TMPDIR\" > temporaries; "
                   "exit 2\n");
  std::filesystem::create_directory(rig.path("tmp"));
  auto command = rig.command({"plan", "recipe.yaml", "model.hidden=77"});
  command.environment.emplace_back("TMPDIR", rig.path("tmp").string());
  EXPECT_EQ(process::run(command, test::kPatience).end.exit_status, 0);
  EXPECT_THAT(test::read_file(rig.path("described")), HasSubstr("hidden: 77"));
  EXPECT_EQ(test::read_file(rig.path("temporaries")), "");
}

}  // namespace
}  // namespace lockstep
