#include <filesystem>

#include <gtest/gtest.h>

#include "lockstep/base/files.h"
#include "lockstep/comm/join.h"
#include "lockstep/train/trainer.h"
#include "tests/support/support.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

TEST(Begin, ALoopThatIsOnlyMadeLeavesEveryFileWhereItIs) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  auto world = comm::join({}, {});
  auto config = test::quick_config();
  config.train.steps = 4;
  config.checkpoint.every = 2;
  {
    Reporter reporter({run, console}, config.monitor, {});
    train(test::resolved(config), {run, reporter, stop, world});
  }
  ASSERT_TRUE(fs::exists(run.checkpoints() / "step_4"));

  config.checkpoint.resume = "never";
  const auto resolved = test::resolved(config);
  const auto shared = open_shared(*resolved, {});
  Reporter reporter({run, console}, config.monitor, {});
  const auto loop = make_loop(resolved, {run, reporter, stop, world}, *shared);
  EXPECT_TRUE(fs::exists(run.checkpoints() / "step_4"));
  EXPECT_FALSE(fs::exists(run.checkpoints() / "set_aside_1"));
  loop->begin();
  EXPECT_FALSE(fs::exists(run.checkpoints() / "step_4"));
  EXPECT_TRUE(fs::exists(run.checkpoints() / "set_aside_1" / "step_4"));
}

}  // namespace
}  // namespace lockstep::train
