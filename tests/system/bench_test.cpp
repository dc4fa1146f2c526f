// bench, find-lr and --profile with real workers.
#include <nlohmann/json.hpp>

#include "lockstep/monitor/timeline.h"
#include "tests/system/command.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class Bench : public testing::Test {
 protected:
  process::Output lockstep(const std::string& command,
                           const std::vector<std::string>& more) const {
    std::vector<std::string> words{command,           test::quick_recipe(),
                                   "model.name=mlp",  "data.train_samples=256",
                                   "batch.global=24", "parallel.device=cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return test::lockstep_command(words, folder_.path());
  }

  files::TemporaryDirectory folder_;
};

TEST_F(Bench, ComparesStrategiesAndSizesInOneRun) {
  const auto output =
      lockstep("bench", {"--strategies", "single,data_parallel,ddp", "--ranks", "1,2",
                         "--steps", "4", "--warmup", "2", "--json"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr("single with 2 ranks skipped"));
  const auto json = nlohmann::json::parse(output.out, nullptr, false);
  ASSERT_EQ(json["results"].size(), 5U) << output.out;
  for (const auto& row : json["results"]) {
    EXPECT_EQ(row["state"], "done") << row;
    EXPECT_GT(row["step_seconds"].get<double>(), 0);
    EXPECT_NEAR(
        row["samples_per_second"].get<double>() * row["step_seconds"].get<double>(), 24,
        1e-6);  // rounding
    EXPECT_GT(row["busy"].get<double>(), 0);
    EXPECT_GT(row["efficiency"].get<double>(), 0);
    ASSERT_EQ(row["peak_memory_bytes"].size(), row["ranks"].get<std::size_t>());
    EXPECT_GT(row["peak_memory_bytes"].back().get<std::int64_t>(), 1 << 20);
    const auto run = folder_.path() / "runs/bench_0001" / row["run"].get<std::string>();
    const auto timeline = monitor::read_chrome_trace(run / "trace.json");
    EXPECT_EQ(monitor::step_seconds(timeline).at(0).size(), 4U) << "after the warm-up";
    EXPECT_FALSE(std::filesystem::exists(run / "model.safetensors"));
  }
}

TEST_F(Bench, GoesOnWhereOneCanNotBe) {
  const auto output = lockstep("bench", {"--strategies", "ddp", "--ranks", "5,2",
                                         "--steps", "2", "--warmup", "1"});
  EXPECT_EQ(output.end.shell_status(), 1) << output.err;
  EXPECT_THAT(output.out, testing::ContainsRegex("ddp +5 +failed"));
  EXPECT_THAT(output.out, HasSubstr("24 is not a multiple of parallel.ranks=5"));
  EXPECT_THAT(output.out, testing::ContainsRegex("ddp +2 +[0-9]"));
}

TEST_F(Bench, AProfileIsATraceAndATable) {
  const auto plain = lockstep("train", {"--ranks", "2", "--run-dir", "plain"});
  const auto output = lockstep(
      "train", {"--ranks", "2", "--run-dir", "timed", "--profile", "steps=5:9"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("mean of 5 steps, 2 ranks"));
  EXPECT_THAT(output.out, testing::ContainsRegex("communication +[0-9.]+ +[0-9.]+ %"));
  EXPECT_EQ(test::losses_in(folder_.path() / "timed"),
            test::losses_in(folder_.path() / "plain"))
      << plain.err;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "plain/trace.json"));
  const auto timeline = monitor::read_chrome_trace(folder_.path() / "timed/trace.json");
  EXPECT_EQ(timeline.ranks.size(), 2U);
}

TEST_F(Bench, ALearningRateIsFoundByAllRanksTogether) {
  std::vector<double> found;
  for (const std::string ranks : {"1", "2"}) {
    const auto output = lockstep(
        "find-lr", {"--json", "--steps", "60", "--from", "1e-6", "--to", "10",
                    "optim.name=sgd", "parallel.threads=1", "parallel.ranks=" + ranks});
    EXPECT_EQ(output.end.shell_status(), 0) << output.err;
    const auto json = nlohmann::json::parse(output.out, nullptr, false);
    ASSERT_TRUE(json["suggestion"].is_number()) << output.out;
    found.push_back(json["suggestion"].get<double>());
    EXPECT_GT(found.back(), 1e-5);
    EXPECT_LT(found.back(), 10);
    EXPECT_NEAR(json["points"][0]["lr"].get<double>(), 1e-6, 1e-12);  // rounding
    const auto run = folder_.path() / json["dir"].get<std::string>();
    EXPECT_THAT(test::read_file(run / "lr_finder.csv"),
                testing::StartsWith("step,lr,loss,smoothed\n1,"));
    EXPECT_FALSE(std::filesystem::exists(run / "model.safetensors"));
  }
  EXPECT_EQ(found[0], found[1]) << "the loss is that of the global batch";
}

}  // namespace
}  // namespace lockstep
