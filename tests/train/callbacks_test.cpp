#include "lockstep/train/callbacks.h"

#include "lockstep/monitor/console.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/trainer.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using testing::ElementsAre;

// Writes down who called it.
class Diary : public Callback {
 public:
  void on_train_begin(const RunContext& m) override { note(m, "begin"); }
  void on_epoch_begin(const RunContext& m) override { note(m, "epoch {"); }
  void on_step_begin(const RunContext& m, const data::Batch& batch) override {
    note(m, str("step of ", batch.global_size));
  }
  void on_pass(const RunContext& m, profile::PassEvent pass) override {
    note(m, pass == profile::PassEvent::forward_begins    ? "forward"
            : pass == profile::PassEvent::backward_begins ? "backward"
                                                          : "passed");
  }
  void on_gradients(const RunContext& m) override {
    note(m, m.strategy.parameters()[0].tensor.grad().defined() ? "gradients" : "none");
  }
  void on_step_end(const RunContext& m, const StepEnd&) override { note(m, "changed"); }
  void on_report(const RunContext& m, const TrainReport&) override {
    note(m, "report");
  }
  void on_eval_begin(const RunContext& m) override { note(m, "eval {"); }
  void on_eval_end(const RunContext& m, const EvalReport&) override { note(m, "}"); }
  void on_epoch_end(const RunContext& m) override { note(m, "} epoch"); }
  void on_saved(const RunContext& m, const std::filesystem::path& file) override {
    note(m, file.filename().string());
  }
  void on_train_end(const RunContext& m, const Result&) override { note(m, "end"); }
  bool should_stop() const override { return steps >= enough; }

  std::vector<std::string> lines;
  std::int64_t steps = 0, enough = 1'000'000;

 private:
  void note(const RunContext& m, const std::string& what) {
    if (m.world.rank() != 0) return;
    steps = m.step;
    lines.push_back(str(m.step, " ", what));
  }
};

// One epoch of two steps, of two micro-batches each.
config::Config two_steps() {
  auto config = test::small_config();
  config.batch.micro = 4;
  config.train.log_every = 2;
  config.eval.sanity_batches = 0;
  return config;
}

Result train_with(const config::Config& config, const RunHooks& hooks) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  auto world = comm::join({}, {});
  Reporter reporter({run, console}, config.monitor, {});
  return train(test::resolved(config), {run, reporter, stop, world}, hooks);
}

RunHooks with(const std::shared_ptr<Callback>& callback) {
  return {.callbacks = {callback},
          .train_data = std::make_shared<test::SmallImages>(16),
          .eval_data = std::make_shared<test::SmallImages>(8)};
}

TEST(Callbacks, AreCalledAtEveryBoundaryInOrder) {
  const auto diary = std::make_shared<Diary>();
  train_with(two_steps(), with(diary));
  EXPECT_THAT(
      diary->lines,
      ElementsAre("0 begin", "0 epoch {", "0 step of 8", "0 forward", "0 backward",
                  "0 passed", "0 forward", "0 backward", "0 passed", "0 gradients",
                  "1 changed", "1 report", "1 step of 8", "1 forward", "1 backward",
                  "1 passed", "1 forward", "1 backward", "1 passed", "1 gradients",
                  "2 changed", "2 report", "2 } epoch", "2 model.safetensors",
                  "2 eval {", "2 }", "2 end"));
}

TEST(Callbacks, OneThatHasSeenEnoughEndsAllRanks) {
  auto config = two_steps();
  config.train.epochs = 50;
  config.parallel.strategy = config::Strategy::data_parallel;
  config.parallel.ranks = 2;
  const auto diary = std::make_shared<Diary>();
  diary->enough = 3;
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  const auto result =
      train_replicas(test::resolved(config),
                     {run, {torch::kCPU, torch::kCPU}, console, stop}, with(diary));
  EXPECT_EQ(result.steps, 4) << "it is asked during the step after the third";
  EXPECT_EQ(result.ended_early, "stopped by a callback");
  EXPECT_TRUE(result.eval) << "the end is evaluated all the same";
}

TEST(Callbacks, WhatOneThrowsEndsTheRun) {
  struct Thrower : Callback {
    void on_gradients(const RunContext&) override { throw Error(Fault::config, "no"); }
  };
  EXPECT_EQ(test::error_text(
                Fault::config,
                [] { train_with(two_steps(), with(std::make_shared<Thrower>())); }),
            "no");
}

TEST(Callbacks, AModelOfOnesOwnIsTrained) {
  struct Own : models::Model {
    torch::Tensor forward(const torch::Tensor& x) override {
      return last->forward(x.flatten(1));
    }
    torch::nn::Linear last = register_module("last", torch::nn::Linear(64, 4));
  };
  auto hooks = with(std::make_shared<Diary>());
  hooks.build_model = [](const models::Shape& shape) {
    EXPECT_EQ(shape.num_classes, 4);
    return std::make_shared<Own>();
  };
  auto config = two_steps();
  config.train.epochs = 20;
  config.optim.lr = 0.01;
  const auto result = train_with(config, hooks);
  EXPECT_EQ(result.steps, 40);
  EXPECT_GT(result.eval->find("accuracy"), 0.9);
}

}  // namespace
}  // namespace lockstep::train
