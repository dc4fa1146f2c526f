// What a run teaches the next prediction, and when it teaches nothing.
#include "lockstep/jobs/compare.h"

#include <nlohmann/json.hpp>

#include "lockstep/jobs/host_load.h"
#include "lockstep/jobs/knowledge.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/planner/shipped.h"
#include "tests/support/support.h"

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace lockstep::test {

class Compared : public ::testing::Test {
 protected:
  // Compares a run of three steps that others disturbed by so much.
  std::optional<run::Comparison> compare(
      double others_share, const char* learn,
      run::ModelDescription model = planner::shipped_model("gpt2-124m")) {
    const std::vector<config::Override> knobs{
        {"batch.global", "8"},
        {"planner.learn", learn},
        {"model.own_backward", model.own_passes.exist ? "true" : "auto"}};
    const auto machine = planner::shipped_machine("cpu-16");
    const planner::Knowledge knowledge{.model = std::move(model)};
    const auto plan = planner::resolve(config::defaults(knobs, {}), machine, knowledge);
    run::NewRun wanted;
    wanted.record = run::record_of_this_process();
    const auto run = run::RunDirectory::create(folder_.path() / "runs", wanted);
    monitor::MetricsWriter metrics(run.metrics());
    for (int step = 1; step <= 3; ++step) {
      metrics.write(
          {.step = step, .more = {{"step_seconds", 2.0}, {"memory_peak_bytes", 1e9}}});
    }
    jobs::Caller caller;
    caller.environment = {{"XDG_STATE_HOME", (folder_.path() / "state").string()}};
    caller.say = [this](std::string_view text) { said_.emplace_back(text); };
    return jobs::compare_with_plan({.plan = plan,
                                    .knowledge = knowledge,
                                    .machine = machine,
                                    .others_share = others_share},
                                   run, caller);
  }

  bool learnt() const { return std::filesystem::exists(folder_.path() / "state"); }

  files::TemporaryDirectory folder_;
  std::vector<std::string> said_;
};

TEST_F(Compared, ARunOnAnIdleMachineTeachesTheNextPrediction) {
  EXPECT_TRUE(compare(0.1, "idle"));
  EXPECT_TRUE(learnt());
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(Compared, ARunOnABusyMachineTeachesNothingAndSaysSo) {
  EXPECT_TRUE(compare(0.6, "idle")) << "it is compared all the same";
  EXPECT_FALSE(learnt());
  EXPECT_THAT(said_, Contains(HasSubstr("other processes took 60 % of the cores")));
}

TEST_F(Compared, ABusyMachineSaysNothingOfHowRightTheTimeWas) {
  const auto alone = compare(0.2, "never"), beside = compare(0.6, "never");
  EXPECT_FALSE(alone->is_busy());
  EXPECT_TRUE(beside->is_busy());
  const auto text = read_file(folder_.path() / "runs/0002/run.json");
  EXPECT_THAT(text, HasSubstr("\"others_share\": 0.6"));
  const auto prediction = nlohmann::json::parse(text).at("prediction");
  EXPECT_FALSE(prediction.at("step_seconds").contains("error"));
  EXPECT_TRUE(prediction.at("memory_bytes").contains("error"));
  const auto read = run::RunDirectory::open(folder_.path() / "runs/0002").read_record();
  EXPECT_DOUBLE_EQ(read.comparison->others_share, 0.6);
}

TEST(Trials, OfABusyMachineAreNotKept) {
  auto model = planner::shipped_model("gpt2-124m");
  model.trials.clear();
  EXPECT_FALSE(jobs::is_of_busy_machine(model, 0.9)) << "nothing was timed";
  model.trials.push_back({.threads = 1, .samples = 2, .seconds = 1});
  EXPECT_FALSE(jobs::is_of_busy_machine(model, 0.1));
  EXPECT_TRUE(jobs::is_of_busy_machine(model, 0.5));
}

TEST_F(Compared, AUserDecidesWhetherItIsRemembered) {
  compare(0, "never");
  EXPECT_FALSE(learnt());
  compare(0.9, "always");
  EXPECT_TRUE(learnt());
}

TEST_F(Compared, ARunOfAModelsOwnPassesTeachesThoseOnly) {
  auto model = planner::shipped_model("gpt2-124m");
  model.own_passes.exist = true;
  model.own_passes.kept.fp32 = {1 << 20, 0};
  compare(0.1, "idle", model);
  const auto config = config::defaults(std::vector<config::Override>{}, {}).config;
  const auto machine = planner::shipped_machine("cpu-16");
  jobs::Caller caller;
  caller.environment = {{"XDG_STATE_HOME", (folder_.path() / "state").string()}};
  EXPECT_EQ(jobs::correction_for({model, config, machine}, caller).runs, 0)
      << "nothing of autograd's passes";
  auto own = config;
  own.model.own_backward = true;
  EXPECT_EQ(jobs::correction_for({model, own, machine}, caller).runs, 1);
}

TEST(OtherLoad, IsCountedOnTheCpusThatWeMayUse) {
  const std::string stat =
      "cpu  900 0 100 9000 0 0 0 0 0 0\n"
      "cpu0 100 10 20 1000 500 5 5 0 0 0\n"
      "cpu1 200 0 0 1000 0 0 0 0 0 0\n"
      "cpu10 400 0 0 1000 0 0 0 0 0 0\n"
      "intr 1 2 3\n";
  EXPECT_DOUBLE_EQ(jobs::busy_seconds(stat, {0}, 100), 1.4) << "not idle, not waiting";
  EXPECT_DOUBLE_EQ(jobs::busy_seconds(stat, {0, 1}, 100), 3.4);
  EXPECT_DOUBLE_EQ(jobs::busy_seconds(stat, {}, 100), 0);
  EXPECT_DOUBLE_EQ(jobs::busy_seconds("torn cpu0", {0}, 100), 0);
}

TEST(OtherLoad, IsAShare) {
  const jobs::OtherLoad load;
  const double share = load.share();
  EXPECT_GE(share, 0);
  EXPECT_LE(share, 1);
}

}  // namespace lockstep::test
