#include <filesystem>
#include <map>

#include <gtest/gtest.h>

#include "lockstep/base/files.h"
#include "lockstep/comm/join.h"
#include "lockstep/train/callbacks.h"
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

// Looks at the optimizer's copies before the first step.
struct LooksAtMasters : Callback {
  void on_train_begin(const RunContext& m) override {
    for (const auto& parameter : m.strategy.parameters()) {
      masters[parameter.name] =
          m.strategy.full_tensors().optimizer_state(parameter.name).at("master");
      values[parameter.name] = parameter.tensor.detach().clone();
    }
  }
  std::map<std::string, torch::Tensor> masters, values;
};

TEST(Begin, FloatCopiesOf16BitParametersAreNotRounded) {
  auto config = test::quick_config();
  config.precision.mode = config::Precision::bf16_params;
  config.train.steps = 1;
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  auto world = comm::join({}, {});
  Reporter reporter({run, console}, config.monitor, {});
  const auto looks = std::make_shared<LooksAtMasters>();
  train(test::resolved(config), {run, reporter, stop, world}, {.callbacks = {looks}});
  ASSERT_FALSE(looks->masters.empty());
  for (const auto& [name, master] : looks->masters) {
    EXPECT_TRUE(looks->values.at(name).equal(master.to(torch::kBFloat16))) << name;
    const auto rounded = looks->values.at(name).to(torch::kFloat32);
    EXPECT_FALSE(rounded.equal(master)) << name << " has lost what bf16 does not hold";
  }
}

}  // namespace
}  // namespace lockstep::train
