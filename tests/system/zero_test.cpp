// What ZeRO is for: a model that does not fit as a whole.
#include "tests/system/training.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

constexpr int kRanks = 4;

// 2 million parameters: 32 MB with gradients and AdamW's state in fp32. Over gloo ranks
// share no memory, so that all that a rank has is its own.
std::vector<std::string> large_model(const std::vector<std::string>& strategy) {
  return test::joined({"model.name=gpt",
                       "model.hidden=128",
                       "model.layers=10",
                       "model.heads=2",
                       "data.name=synthetic",
                       "data.dtype=int64",
                       "data.shape=[16]",
                       "data.classes=50",
                       "data.synthetic_samples=64",
                       "data.train_samples=0",
                       "data.eval_samples=0",
                       "batch.global=8",
                       "batch.eval=4",
                       "train.steps=4",
                       "precision.mode=fp32",
                       "parallel.persist_below=0",
                       "parallel.bucket_bytes=1MiB",
                       "parallel.shard_update=off",
                       "comm.backend=gloo",
                       "memory.host_limit=24MiB"},
                      strategy);
}

TEST(ZeroFits, AModelTooLargeForDdpTrainsAtStageThree) {
  const files::TemporaryDirectory folder;
  const auto train = [&](const std::string& name, const std::vector<std::string>& how) {
    return test::run(
        test::train_command(folder.path() / name, kRanks, large_model(how)));
  };
  const auto ddp = train("ddp", {"parallel.strategy=ddp"});
  EXPECT_NE(ddp.end.shell_status(), 0);
  EXPECT_THAT(ddp.err, HasSubstr("memory.host_limit 24 MiB"));
  EXPECT_THAT(ddp.err, HasSubstr("parallel.strategy: ddp"));
  const auto zero =
      train("zero", {"parallel.strategy=zero", "parallel.zero_stage=3"});
  ASSERT_EQ(zero.end.shell_status(), 0) << zero.err;
  EXPECT_EQ(test::record_of(folder.path() / "zero").state, run::RunStatus::done);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "zero" / "model.safetensors"));
}

}  // namespace
}  // namespace lockstep
