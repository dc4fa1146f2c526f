// Which checkpoint a run resumes from.
#include "lockstep/base/version.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/digest.h"
#include "lockstep/storage/reader.h"
#include "tests/train/checkpoint_rig.h"

namespace lockstep::train {
namespace {

using test::checkpoints_in;
using test::flip_a_bit;
using test::four_steps;
using test::rich_config;
using test::run_alone;
using testing::HasSubstr;

TEST(Checkpoint, ADamagedOneIsLeftOutAndTheOneBeforeTaken) {
  const files::TemporaryDirectory folder;
  auto config = four_steps();
  run_alone(folder.path(), config);
  const auto steps = checkpoints_in(folder.path());
  flip_a_bit(steps / "step_4" / "rank_0.safetensors");
  config.train.steps = 5;
  config.checkpoint.keep = 1;
  config.checkpoint.every = 3;
  EXPECT_EQ(run_alone(folder.path(), config).result.resumed_at, 2);
  // A later one that is damaged is no reason to remove those that are saved now.
  EXPECT_EQ(storage::list_steps(steps).back().step, 5);
  EXPECT_TRUE(std::filesystem::exists(steps / "set_aside_1" / "step_4"));
  config.train.steps = 6;
  EXPECT_EQ(run_alone(folder.path(), config).result.resumed_at, 5);
}

// Nothing is wrong with it: an older one must not be taken instead, nor this set aside.
TEST(Checkpoint, OneOfANewerLockstepIsRefused) {
  const files::TemporaryDirectory folder;
  auto config = four_steps();
  run_alone(folder.path(), config);
  const auto steps = checkpoints_in(folder.path());
  const auto manifest = steps / "step_4" / storage::kManifestName;
  auto text = test::read_file(manifest);
  const std::string old = "\"format\": 1,";
  text.replace(text.find(old), old.size(), "\"format\": 9,");
  const auto rest = text.substr(text.find('\n') + 1);
  const auto digest = storage::to_hex(storage::digest_of(rest));
  test::write_file(manifest, str("{\"digest\": \"", digest, "\",\n", rest));
  EXPECT_THAT(
      test::error_text(Fault::config, [&] { run_alone(folder.path(), config); }),
      HasSubstr("format 9 is newer"));
  EXPECT_TRUE(std::filesystem::exists(manifest));
}

// Between a save's begin and the next forward pass nothing waits: there is no callback.
TEST(Checkpoint, WhatIsSavedWhileTrainingGoesOnIsTheStepItSays) {
  const files::TemporaryDirectory one;
  auto config = rich_config();
  config.train.steps = 7;
  config.checkpoint.every = 1;
  config.checkpoint.keep = 100;
  const auto unbroken = run_alone(one.path(), config);
  for (const std::int64_t step : {1, 4, 6}) {
    const files::TemporaryDirectory other;
    const auto name = str("step_", step);
    const auto from = one.path() / "runs" / "r" / "checkpoints" / name;
    config.checkpoint.resume = from.string();
    const auto later = run_alone(other.path(), config);
    EXPECT_EQ(later.result.resumed_at, step);
    EXPECT_EQ(later.result.eval->loss, unbroken.result.eval->loss) << name;
    for (const auto& [at, loss] : later.losses) {
      EXPECT_EQ(loss, unbroken.losses.at(at)) << name << ", step " << at;
    }
  }
}

TEST(Checkpoint, NeverBeginsAnewAndAPathGoesOnFromAnotherRun) {
  const files::TemporaryDirectory one, other;
  auto config = test::quick_config();
  config.train.steps = 4;
  config.checkpoint.every = 2;
  const auto first = run_alone(one.path(), config);
  config.checkpoint.resume = (one.path() / "runs" / "r").string();
  config.train.steps = 6;
  const auto second = run_alone(other.path(), config);
  EXPECT_EQ(second.result.resumed_at, 4);
  EXPECT_EQ(second.losses.begin()->first, 5);
  config.checkpoint.resume = "never";
  config.checkpoint.keep = 1;
  config.train.steps = 2;
  EXPECT_FALSE(run_alone(other.path(), config).result.resumed_at);
  const auto steps = other.path() / "runs" / "r" / "checkpoints";
  EXPECT_EQ(storage::list_steps(steps).back().step, 2) << "not that of the run before";
  EXPECT_TRUE(std::filesystem::exists(steps / "set_aside_1" / "step_6"));
  // The launcher starts it again after a fault: it resumes from its own.
  config.train.steps = 3;
  EXPECT_EQ(run_alone(other.path(), config, {.restarts = 1}).result.resumed_at, 2);
  config.checkpoint.every = 1;
  config.checkpoint.keep = 5;
  config.train.steps = 5;
  config.checkpoint.resume = "auto";
  run_alone(other.path(), config);
  // A command that is given again resumes from what it has saved since.
  config.checkpoint.resume = (steps / "step_4").string();
  config.train.steps = 6;
  EXPECT_EQ(run_alone(other.path(), config).result.resumed_at, 5);
  config.checkpoint.resume = (one.path() / "nothing").string();
  const files::TemporaryDirectory third;
  EXPECT_THAT(test::error_text(Fault::config, [&] { run_alone(third.path(), config); }),
              HasSubstr("is not a checkpoint"));
}

// All steps are done there; this run can be extended and exported all the same.
TEST(Checkpoint, ARunThatGoesOnFromTheEndOfAnotherHasALastOneOfItsOwn) {
  const files::TemporaryDirectory one, other;
  auto config = test::quick_config();
  config.train.steps = 4;
  run_alone(one.path(), config);
  config.checkpoint.resume = (one.path() / "runs" / "r").string();
  const auto second = run_alone(other.path(), config);
  EXPECT_EQ(second.result.resumed_at, 4);
  EXPECT_EQ(second.result.steps, 4);
  EXPECT_TRUE(second.losses.empty());
  const auto own = other.path() / "runs" / "r" / "checkpoints";
  const auto steps = storage::list_steps(own);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps.back().step, 4);
  EXPECT_EQ(second.result.checkpoint, (own / "step_4").string());
  // Its own one it does not save again.
  config.checkpoint.resume = "auto";
  EXPECT_NE(run_alone(other.path(), config).result.already_over, "");
  EXPECT_EQ(storage::list_steps(own).size(), 1U);
}

}  // namespace
}  // namespace lockstep::train
