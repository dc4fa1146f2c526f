// What a person reads who starts a run again.
#include "tests/system/training.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TEST(Resume, SaysFromWhereAndWhichKnobsDifferNow) {
  const files::TemporaryDirectory folder;
  const auto run = folder.path() / "run";
  const std::vector<std::string> few{"model.name=mlp", "model.hidden=16",
                                     "checkpoint.every=2"};
  const auto first =
      test::run(test::train_command(run, 1, test::joined(few, {"train.steps=2"})));
  ASSERT_EQ(first.end.shell_status(), 0) << first.err;
  const auto second = test::run(test::train_command(
      run, 1, test::joined(few, {"train.steps=4", "optim.lr=0.002"})));
  ASSERT_EQ(second.end.shell_status(), 0) << second.err;
  const auto said = second.out + second.err;
  EXPECT_THAT(said, HasSubstr("resuming from step 2: "));
  EXPECT_THAT(said, HasSubstr("step_2\n"));
  EXPECT_THAT(said, HasSubstr("config changed since the checkpoint: optim.lr 0.001 "
                              "-> 0.002, train.steps 2 -> 4\n"));
}

TEST(Resume, OneThatIsRefusedLeavesTheConfigOfItsCheckpoints) {
  const files::TemporaryDirectory folder;
  const auto run = folder.path() / "run";
  const std::vector<std::string> few{"model.name=mlp", "checkpoint.every=2"};
  const auto first = test::run(test::train_command(
      run, 1, test::joined(few, {"train.steps=2", "model.hidden=16"})));
  ASSERT_EQ(first.end.shell_status(), 0) << first.err;
  const auto config = test::read_file(run / "config.yaml");
  const auto plan = test::read_file(run / "plan.json");
  const auto second = test::run(test::train_command(
      run, 1, test::joined(few, {"train.steps=4", "model.hidden=24"})));
  EXPECT_EQ(second.end.shell_status(), 2) << second.err;
  EXPECT_EQ(test::read_file(run / "config.yaml"), config);
  EXPECT_EQ(test::read_file(run / "plan.json"), plan);
  EXPECT_FALSE(std::filesystem::exists(run / "config.before.yaml"));
  // One that goes on has its own.
  const auto third = test::run(test::train_command(
      run, 1, test::joined(few, {"train.steps=4", "model.hidden=16"})));
  ASSERT_EQ(third.end.shell_status(), 0) << third.err;
  EXPECT_THAT(test::read_file(run / "config.yaml"), HasSubstr("steps: 4"));
  EXPECT_FALSE(std::filesystem::exists(run / "config.before.yaml"));
}

}  // namespace
}  // namespace lockstep
