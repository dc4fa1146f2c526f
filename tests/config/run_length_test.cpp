// Decisions that the planner and the worker share.
#include "lockstep/config/run_length.h"

#include "lockstep/config/decisions.h"
#include "lockstep/config/resolved.h"
#include "tests/config/recipe_file.h"

using ::testing::HasSubstr;

namespace lockstep::test {
namespace {

config::Config counted(std::int64_t batch, std::int64_t steps, std::int64_t epochs) {
  config::Config config;
  config.batch.global = batch;
  config.train.steps = steps;
  config.train.epochs = epochs;
  return config;
}

}  // namespace

TEST(RunLength, TheShortLastBatchIsAStepUnlessItIsDropped) {
  auto config = counted(32, 0, 3);
  EXPECT_EQ(config::run_length(config, 100).steps_per_epoch, 4);
  EXPECT_EQ(config::run_length(config, 100).steps, 12);
  config.data.drop_last = true;
  EXPECT_EQ(config::run_length(config, 100).steps_per_epoch, 3);
  EXPECT_EQ(config::run_length(config, 100).last_step, 9);
}

TEST(RunLength, StepsWinOverEpochsAndLimitsCutEpochs) {
  auto config = counted(10, 7, 3);
  EXPECT_EQ(config::run_length(config, 100).steps, 7);
  config.train.steps = 0;
  config.train.limit_train_batches = 2;
  EXPECT_EQ(config::run_length(config, 100).steps_per_epoch, 2);
  EXPECT_EQ(config::run_length(config, 100).steps, 6);
}

TEST(RunLength, ADevRunEndsEarlyAndLeavesTheScheduleItsLength) {
  auto config = counted(10, 0, 2);
  config.train.fast_dev_run = 5;
  EXPECT_EQ(config::run_length(config, 100).steps, 20);
  EXPECT_EQ(config::run_length(config, 100).last_step, 5);
  EXPECT_EQ(config::run_length(config, 20).last_step, 4);
}

TEST(RunLength, WithoutABatchThereIsNoRun) {
  auto config = counted(32, 0, 1);
  config.data.drop_last = true;
  EXPECT_THAT(error_text(Fault::config, [&] { config::run_length(config, 31); }),
              HasSubstr("data.drop_last: a batch has 32 samples, the data set 31"));
}

TEST(Decisions, AShardIsUpdatedWhereItIsAskedForOrRanksShareMemory) {
  config::ParallelConfig parallel;
  for (const auto by_default :
       {config::ShardUpdate::automatic, config::ShardUpdate::shm}) {
    parallel.shard_update = by_default;
    EXPECT_TRUE(config::shards_update(parallel, true));
    EXPECT_FALSE(config::shards_update(parallel, false));
  }
  parallel.gradient_as_bucket_view = false;  // promises whole gradients
  EXPECT_FALSE(config::shards_update(parallel, true));
  parallel.shard_update = config::ShardUpdate::on;
  EXPECT_TRUE(config::shards_update(parallel, false));
  parallel.shard_update = config::ShardUpdate::off;
  EXPECT_FALSE(config::shards_update(parallel, true));
}

TEST(Resolved, NamesTheKnobsThatAreStillAuto) {
  config::Config config;
  const auto problem =
      error_text(Fault::config, [&] { config::Resolved resolved(config); });
  EXPECT_THAT(problem, HasSubstr("batch.global, "));
  EXPECT_THAT(problem, HasSubstr("precision.mode"));
  EXPECT_THAT(problem, HasSubstr("are still auto"));
  EXPECT_THAT(problem, ::testing::Not(HasSubstr("schedule.goal")))
      << "the task decides that one";
}

TEST(Resolved, IsTheListThatTheReaderOfRecipesHas) {
  const auto loaded = RecipeFile("batch: {global: 8}\n").load({});
  EXPECT_EQ(config::auto_keys(loaded), config::auto_keys(loaded.config));
  EXPECT_THAT(config::auto_keys(loaded),
              ::testing::Not(::testing::Contains("batch.global")));
}

}  // namespace lockstep::test
