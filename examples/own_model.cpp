// A model of your own in the whole trainer: planned for this machine, with metrics,
// evaluation, checkpoints and a run directory, and called back at the boundaries you
// care about. Prints the accuracy; expected: above 0.7 after 100 steps.
#include <iostream>

#include <torch/torch.h>

#include "lockstep/comm/join.h"
#include "lockstep/config/print.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/monitor/console.h"
#include "lockstep/planner/plan.h"
#include "lockstep/train/callbacks.h"
#include "lockstep/train/trainer.h"

using namespace lockstep;  // NOLINT(google-build-using-namespace): an example

struct Net : models::Model {
  torch::Tensor forward(const torch::Tensor& x) override {
    return two->forward(torch::relu(one->forward(x.flatten(1))));
  }
  torch::nn::Linear one = register_module("one", torch::nn::Linear(784, 128));
  torch::nn::Linear two = register_module("two", torch::nn::Linear(128, 10));
};

struct Says : train::Callback {
  void on_report(const train::Moment& at, const train::TrainReport& report) override {
    std::cout << "step " << at.step << " loss " << report.means.loss << "\n";
  }
};

int main() {
  const std::vector<config::Override> wanted{{"train.steps", "100"},
                                             {"monitor.verbosity", "quiet"}};
  const auto plan =
      planner::resolve(config::defaults(wanted, {}), hardware::detect(), true);
  const auto& config = plan.config.config;
  const auto folder = files::TemporaryDirectory();  // "runs", to keep it
  monitor::NewRun wanted_run;
  wanted_run.config_yaml = config::to_yaml(plan.config, true);
  const auto run = monitor::RunDirectory::create(folder.path(), wanted_run);

  auto world = comm::join({}, {});
  monitor::Console console({.write = [](std::string_view) {}});
  const train::StopRequest stop;  // Ctrl-C, SIGTERM
  train::Reporter reporter(run, config.monitor, console, {});
  const auto result = train::train(
      config, run, reporter, stop, world,
      {.callbacks = {std::make_shared<Says>()},
       .build_model = [](const models::Shape&) { return std::make_shared<Net>(); }});
  std::cout << "accuracy " << result.eval->accuracy << std::endl;
  return 0;
}
