// ZeRO from outside: a model that does not fit as a whole; commands that compare
// stages.
#include <nlohmann/json.hpp>

#include "tests/system/training.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// 2 million parameters: 32 MB with gradients and AdamW's state in fp32. Over gloo ranks
// share no memory, so that all that a rank has is its own.
std::vector<std::string> large_model(const std::vector<std::string>& strategy) {
  return test::joined(
      {"model.name=gpt", "model.hidden=128", "model.layers=10", "model.heads=2",
       "data.name=synthetic", "data.dtype=int64", "data.shape=[16]", "data.classes=50",
       "data.synthetic_samples=64", "data.train_samples=0", "data.eval_samples=0",
       "batch.global=8", "batch.eval=4", "train.steps=4", "precision.mode=fp32",
       "parallel.persist_below=0", "parallel.bucket_bytes=1MiB", "comm.backend=gloo",
       "memory.host_limit=24MiB"},
      strategy);
}

TEST(ZeroFits, AModelTooLargeForDdpTrainsAtStageThree) {
  const files::TemporaryDirectory folder;
  const auto train = [&](const std::string& name, const std::vector<std::string>& how) {
    return test::run(test::train_command(folder.path() / name, 4, large_model(how)));
  };
  const auto ddp = train("ddp", {"parallel.strategy=ddp", "parallel.shard_update=off"});
  EXPECT_NE(ddp.end.shell_status(), 0);
  EXPECT_THAT(ddp.err, HasSubstr("memory.host_limit 24.0 MiB"));
  EXPECT_THAT(ddp.err, HasSubstr("parallel.strategy: ddp"));
  const auto zero = train("zero", {"parallel.strategy=zero", "parallel.zero_stage=3"});
  ASSERT_EQ(zero.end.shell_status(), 0) << zero.err;
  EXPECT_EQ(test::record_of(folder.path() / "zero").state, run::RunStatus::done);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "zero" / "model.safetensors"));
}

// One rank has everything: what two and three have shards of is computed alike.
TEST(ZeroCommands, ParityHoldsAtStageTwoAndThree) {
  const files::TemporaryDirectory folder;
  for (const int stage : {2, 3}) {
    const auto output = test::lockstep_command(
        {"parity", test::quick_recipe(), "--ranks", "1,2,3", "--steps", "3", "--json",
         "batch.global=24", "data.train_samples=31", "parallel.device=cpu",
         "parallel.strategy=zero", str("parallel.zero_stage=", stage),
         "parallel.persist_below=0"},
        folder.path());
    EXPECT_EQ(output.end.shell_status(), 0) << output.err;
    const auto json = nlohmann::json::parse(output.out, nullptr, false);
    EXPECT_EQ(json["verdict"], "pass") << output.out;
    EXPECT_EQ(json["comparisons"].size(), 2U);
  }
}

TEST(ZeroCommands, BenchComparesTheStages) {
  const files::TemporaryDirectory folder;
  const auto output = test::lockstep_command(
      {"bench", test::quick_recipe(), "--strategies", "ddp,zero1,zero2,zero3",
       "--ranks", "2", "--steps", "3", "--warmup", "1", "--json",
       "data.train_samples=256", "batch.global=24", "parallel.device=cpu"},
      folder.path());
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  const auto json = nlohmann::json::parse(output.out, nullptr, false);
  ASSERT_EQ(json["results"].size(), 4U) << output.out;
  std::vector<std::string> names;
  for (const auto& row : json["results"]) {
    EXPECT_EQ(row["state"], "done") << row;
    EXPECT_EQ(row["ranks"], 2) << row;
    names.push_back(row["strategy"]);
  }
  EXPECT_THAT(names, testing::UnorderedElementsAre("ddp", "zero1", "zero2", "zero3"));
}

}  // namespace
}  // namespace lockstep
