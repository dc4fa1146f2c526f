// `lockstep bench` without LibTorch: what it takes, what it plans, what it makes of
// traces.
#include "lockstep/cli/detail/bench.h"

#include <nlohmann/json.hpp>

#include "tests/cli/rig.h"

namespace lockstep::cli {
namespace {

using config::Strategy;
using test::lockstep_in_process;
using test::Rig;
using ::testing::HasSubstr;

BenchRequest requested(const std::vector<std::string>& words) {
  auto all = words;
  all.insert(all.begin(), "recipe.yaml");
  return bench_request(parse(bench_command(), all));
}

hardware::Machine four_cores() {
  hardware::Machine machine;
  machine.physical_cores = machine.logical_cores = 4;
  return machine;
}

TEST(BenchRequest, IsEveryStrategyWithEverySizeThatMakesSense) {
  const auto request = requested({"--strategies", "single,ddp", "--ranks", "1,2",
                                  "--steps", "7", "--warmup", "2"});
  std::vector<std::string> ids;
  for (const auto& one : request.cases) ids.push_back(one.id());
  EXPECT_THAT(ids, ::testing::ElementsAre("single_1", "ddp_1", "ddp_2"));
  EXPECT_THAT(
      request.left_out,
      ::testing::ElementsAre("single with 2 ranks skipped: single means one rank"));
  EXPECT_EQ(request.all_steps(), 9);
}

TEST(BenchRequest, OfWhatIsNotThereIsRefused) {
  const auto refused = [](const std::vector<std::string>& words) {
    return test::error_text(Fault::config, [&] { requested(words); });
  };
  EXPECT_THAT(refused({"--strategies", "dpp"}), HasSubstr("'dpp' of 'dpp' is none of"));
  EXPECT_THAT(refused({"--strategies", "ddp,ddp"}), HasSubstr("twice"));
  EXPECT_THAT(refused({"--ranks", "0"}), HasSubstr("--ranks: '0'"));
  EXPECT_THAT(refused({"--strategies", "single", "--ranks", "2"}),
              HasSubstr("nothing is left to time"));
  EXPECT_THAT(refused({"--steps", "20000"}), HasSubstr("--steps: 20000"));
}

TEST(BenchPlan, TimesStepsAndNothingElse) {
  auto wanted =
      config::defaults({{{"train.epochs", "3"}, {"eval.sanity_batches", "2"}}}, {});
  for (auto& [key, source] : wanted.sources) source.origin = config::Origin::recipe;
  BenchRequest request{.cases = {}, .left_out = {}, .steps = 6, .warmup = 2};
  const auto settings = shorten(wanted, request);
  EXPECT_FALSE(settings.empty()) << "what the recipe said is told";
  const auto plan = bench_plan({Strategy::ddp, 2}, {wanted, four_cores(), {}});
  const auto& config = plan.config.config;
  EXPECT_EQ(config.train.steps.value(), 8);
  EXPECT_EQ(config.profile.steps, "3:8");
  EXPECT_EQ(config.train.log_every, 8);
  EXPECT_EQ(config.eval.every.value(), 0);
  EXPECT_EQ(config.eval.sanity_batches, 0);
  EXPECT_FALSE(config.checkpoint.final_weights);
  EXPECT_FALSE(config.checkpoint.save_last);
  EXPECT_EQ(config.parallel.strategy, Strategy::ddp);
  EXPECT_EQ(config.parallel.ranks.value(), 2);
  EXPECT_EQ(config.run.name, "ddp_2");
}

TEST(BenchPlan, RefusesTypedKnobsThatItDecides) {
  for (const config::Override& knob : {config::Override{"parallel.ranks", "2"},
                                       {"parallel.strategy", "ddp"},
                                       {"train.steps", "9"},
                                       {"profile.steps", "1:2"}}) {
    auto wanted = config::defaults({{knob}}, {});
    EXPECT_THAT(test::error_text(Fault::config, [&] { shorten(wanted, {}); }),
                ::testing::AllOf(HasSubstr("bench: " + knob.key), HasSubstr("leave")))
        << knob.key;
  }
}

// Steps of 1, 2 and 6 seconds on rank 0; rank 1 takes half a second more.
monitor::Timeline three_steps(int ranks) {
  monitor::Timeline timeline{.device = "cpu", .backend = "shm"};
  for (int rank = 0; rank < ranks; ++rank) {
    auto& own = timeline.ranks.emplace_back();
    own.cpu_seconds = 9;
    own.peak_memory_bytes = (100 + rank) << 20;
    double begin = 0;
    for (const double seconds : {1.0, 2.0, 6.0}) {
      own.spans.push_back(
          {.index = 32, .begin = begin, .end = begin + seconds + 0.5 * rank});
      begin += seconds;
    }
  }
  return timeline;
}

BenchRow row_with(Strategy strategy, int ranks) {
  const auto plan =
      bench_plan({strategy, ranks}, {config::defaults({}, {}), four_cores(), {}});
  return measured({strategy, ranks}, {plan, three_steps(ranks), 4});
}

TEST(BenchRow, IsTheMedianStepOfTheSlowestRank) {
  const auto row = row_with(Strategy::ddp, 2);
  EXPECT_DOUBLE_EQ(row.step_seconds, 2.5);
  EXPECT_DOUBLE_EQ(row.samples_per_second, 64 / 2.5);
  EXPECT_DOUBLE_EQ(row.busy.value(), 18 / (9.5 * 4));
  EXPECT_THAT(row.peak_memory_bytes, ::testing::ElementsAre(100 << 20, 101 << 20));
  EXPECT_EQ(row.threads, 2);
}

TEST(BenchRow, EfficiencyIsAgainstOneRankOfTheSameStrategyIfThereIsOne) {
  std::vector<BenchRow> rows{row_with(Strategy::single, 1), row_with(Strategy::ddp, 2)};
  rows[0].samples_per_second = 100;
  rows[1].samples_per_second = 150;
  add_efficiency(rows);
  EXPECT_DOUBLE_EQ(rows[0].efficiency.value(), 1);
  EXPECT_DOUBLE_EQ(rows[1].efficiency.value(), 0.75);
  rows.push_back(row_with(Strategy::ddp, 1));
  rows.back().samples_per_second = 75;
  add_efficiency(rows);
  EXPECT_DOUBLE_EQ(rows[1].efficiency.value(), 1);
  rows = {row_with(Strategy::ddp, 2)};
  add_efficiency(rows);
  EXPECT_FALSE(rows[0].efficiency) << "nobody was alone";
}

TEST(BenchRow, OneThatFailedStandsInTheTableWithItsReason) {
  std::vector<BenchRow> rows{row_with(Strategy::single, 1),
                             {.which = {Strategy::ddp, 3}, .error = "no third rank"}};
  add_efficiency(rows);
  const auto text = bench_text(rows, {});
  EXPECT_THAT(text, ::testing::ContainsRegex("ddp +3 +failed"));
  EXPECT_THAT(text, HasSubstr("ddp with 3 ranks failed: no third rank"));
  const auto json = nlohmann::json::parse(bench_json(rows, {}, "runs/bench_0001"));
  EXPECT_EQ(json["results"][0]["state"], "done");
  EXPECT_EQ(json["results"][0]["step_seconds"], 2.0);
  EXPECT_EQ(json["results"][0]["efficiency"], 1.0);
  EXPECT_EQ(json["results"][1]["state"], "failed");
  EXPECT_EQ(json["results"][1]["error"], "no third rank");
}

// Workers that leave no trace, or fail: all are tried, and the status says so.
TEST(Bench, GoesOnAfterOneThatFailed) {
  const Rig rig("case $2 in *single_1) exit 5;; esac; exit 0\n");
  const auto output = rig.run({"bench", "recipe.yaml", "--strategies", "single,ddp",
                               "--ranks", "1", "--json", "parallel.device=cpu"});
  EXPECT_EQ(output.end.shell_status(), 1) << output.err;
  const auto json = nlohmann::json::parse(output.out, nullptr, false);
  ASSERT_EQ(json["results"].size(), 2U) << output.out << output.err;
  EXPECT_EQ(json["results"][0]["state"], "failed");
  EXPECT_EQ(json["results"][1]["state"], "failed");
  EXPECT_EQ(json["dir"], "runs/bench_0001");
  EXPECT_EQ(nlohmann::json::parse(
                test::read_file(rig.path("runs/bench_0001/bench.json")))["results"],
            json["results"]);
  const auto listed = rig.run({"runs", "--json"});
  EXPECT_THAT(nlohmann::json::parse(listed.out, nullptr, false)["skipped"],
              ::testing::IsEmpty())
      << "a bench is no broken run";
  EXPECT_THAT(rig.run({"bench", "recipe.yaml", "--run-dir", "runs"}).err,
              HasSubstr("--run-dir: runs exists already"));
}

}  // namespace
}  // namespace lockstep::cli
