// What a short trial on this machine says of a first run.
#include "lockstep/planner/trials.h"

#include "lockstep/planner/report.h"
#include "tests/planner/scenes.h"

namespace lockstep::test {
namespace {

using planner::Correction;

struct TrialScene {
  TrialScene() {
    machine.cpu_model = "a processor";
    model.cpu_model = machine.cpu_model;
    model.trials = {{.threads = 1, .samples = 8, .seconds = 0.5},
                    {.threads = 16, .samples = 8, .seconds = 0.125}};
    config.parallel.device = config::Device::cpu;
    config.precision.mode = config::Precision::fp32;
  }

  double compute_seconds(int threads, std::int64_t samples) {
    config.parallel.threads = threads;
    Correction correction;
    correction.trials = planner::factors_of_trials(model, machine);
    return planner::time_cost({config, machine, model, correction}, {.micro = samples})
        .compute;
  }

  hardware::Machine machine = planner::shipped_machine("cpu-16");
  run::ModelDescription model = planner::shipped_model("gpt2-124m");
  config::Config config;
};

}  // namespace

TEST(Trials, APassThatWasTriedIsPredictedAsItWas) {
  TrialScene scene;
  EXPECT_NEAR(scene.compute_seconds(1, 8), 0.5, 1e-9);
  EXPECT_NEAR(scene.compute_seconds(16, 8), 0.125, 1e-9);
}

TEST(Trials, OtherPassesFollowTheNearestNumberOfThreads) {
  TrialScene scene;
  EXPECT_GT(scene.compute_seconds(1, 16), 0.9);
  EXPECT_NEAR(scene.compute_seconds(2, 8), 0.25, 0.01) << "twice as fast as with one";
  EXPECT_NEAR(scene.compute_seconds(8, 8), 0.25, 0.01) << "half as fast as with 16";
}

TEST(Trials, OfAnotherProcessorSayNothing) {
  TrialScene scene;
  scene.machine.cpu_model = "another";
  EXPECT_TRUE(planner::factors_of_trials(scene.model, scene.machine).empty());
}

TEST(Trials, ARunThatWasSeenKnowsBetter) {
  Correction correction{.time = 3, .runs = 1};
  correction.trials = {{1, 7}};
  EXPECT_EQ(correction.time_with(1), 3);
  correction.runs = 0;
  EXPECT_EQ(correction.time_with(1), 7);
}

TEST(Trials, ThePlanSaysThatItsSpeedIsOfATrial) {
  TrialScene scene;
  planner::Knowledge knowledge{.model = scene.model};
  knowledge.correction.trials = planner::factors_of_trials(scene.model, scene.machine);
  const auto plan =
      planner::resolve(config::defaults({}, {}), scene.machine, knowledge);
  EXPECT_THAT(planner::report(plan, scene.machine, false),
              ::testing::HasSubstr("a short trial"));
}

}  // namespace lockstep::test
