#pragma once

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/monitor/console.h"
#include "lockstep/train/callbacks.h"
#include "lockstep/train/trainer.h"
#include "tests/comm/ranks.h"
#include "tests/train/small_data.h"

// Runs that are cut, and what they have left.
namespace lockstep::test {

// Loss by step, of the lines that a run has written.
using Losses = std::map<std::int64_t, double>;

struct Ran {
  train::Result result;
  Losses losses;
  std::vector<std::string> events;
};

// Ends after so many steps, as if the power had gone: nothing is saved at the end.
struct Crash : train::Callback {
  explicit Crash(std::int64_t after) : after_step(after) {}
  void on_step_begin(const train::RunContext& m, const data::Batch&) override {
    if (m.step == after_step) throw std::runtime_error("crash");
  }
  std::int64_t after_step;
};

inline Ran run_in(const files::Path& folder, const config::Config& config,
                  comm::World& world, const train::RunHooks& hooks = {}) {
  const auto path = folder / "runs" / "r";
  if (world.rank() == 0 && !std::filesystem::exists(path)) {
    run::RunDirectory::create(folder / "runs", {.name = "r"});
  }
  if (world.size() > 1) world.cpu().barrier();
  const auto run = run::RunDirectory::open(path);
  monitor::Console console({.write = [](std::string_view) {}});
  const train::StopRequest stop;
  Ran ran;
  {
    train::Reporter reporter({run, console}, config.monitor,
                             {.rank = world.rank(), .ranks = world.size()});
    try {
      ran.result = train::train(resolved(config), {run, reporter, stop, world}, hooks);
    } catch (const std::runtime_error& error) {
      if (std::string(error.what()) != "crash") throw;
    }
  }
  if (world.rank() != 0) return ran;
  for (const auto& line : monitor::read_metrics(run.metrics())) {
    if (line.split == monitor::Split::train) ran.losses[line.step] = line.loss;
  }
  for (const auto& event : run::last_events(run.events(), 100)) {
    ran.events.push_back(event.kind);
  }
  return ran;
}

inline Ran run_alone(const files::Path& folder, const config::Config& config,
                     const train::RunHooks& hooks = {}) {
  auto world = comm::join({}, {});
  return run_in(folder, config, world, hooks);
}

inline train::RunHooks crash_after(std::int64_t step) {
  return {.callbacks = {std::make_shared<Crash>(step)}};
}

// A run whose result depends on all that a checkpoint has to hold.
inline config::Config rich_config() {
  auto config = quick_config();
  config.model.name = "resnet9";
  config.model.dropout = 0.3;
  config.batch.global = 20;  // 200 samples: ten steps an epoch
  config.batch.micro = 7;    // accumulation, in pieces that are not alike
  config.augment.crop_padding = 2;
  config.augment.flip = 0.5;
  config.optim.clip_norm = 1.0;
  config.schedule.name = config::Schedule::cosine;
  config.ema.enabled = true;
  config.train.steps = 12;
  config.eval.every = 4;
  config.checkpoint.every = 3;
  config.checkpoint.keep = 2;
  return config;
}

inline void expect_same(const Losses& cut, const Losses& unbroken) {
  ASSERT_EQ(cut.size(), unbroken.size());
  for (const auto& [step, loss] : unbroken) {
    ASSERT_TRUE(cut.contains(step)) << step;
    if (std::isnan(loss)) {  // all since the last line were skipped
      EXPECT_TRUE(std::isnan(cut.at(step))) << "step " << step;
    } else {
      EXPECT_EQ(cut.at(step), loss) << "step " << step;
    }
  }
}

// That saves step 2 and step 4.
inline config::Config four_steps() {
  auto config = quick_config();
  config.train.steps = 4;
  config.checkpoint.every = 2;
  return config;
}

inline files::Path checkpoints_in(const files::Path& folder) {
  return folder / "runs" / "r" / "checkpoints";
}

inline void flip_a_bit(const files::Path& file) {
  auto bytes = read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(file, bytes);
}

}  // namespace lockstep::test
