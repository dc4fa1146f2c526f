// A TorchScript model under every stage of ZeRO: its parameters are the script's own,
// wherever the engine keeps them.
#include <torch/csrc/jit/api/module.h>

#include "lockstep/monitor/console.h"
#include "lockstep/train/trainer.h"
#include "tests/comm/ranks.h"
#include "tests/train/small_data.h"

namespace lockstep::test {

namespace {

torch::Tensor script_values(at::IntArrayRef shape) {
  auto generator = at::detail::createCPUGenerator(31);
  return torch::empty(shape).uniform_(-0.1, 0.1, generator).requires_grad_(true);
}

// In a process of its own: this one is forked afterwards.
void write_script(const files::Path& file) {
  as_processes(1, [&](int) {
    torch::jit::Module script("TwoLayers");
    script.register_parameter("w1", script_values({784, 17}), false);
    script.register_parameter("b1", script_values({17}), false);
    script.register_parameter("w2", script_values({17, 10}), false);
    script.register_parameter("b2", script_values({10}), false);
    script.define(
        "def forward(self, input):\n"
        "    h = (input.flatten(1).matmul(self.w1) + self.b1).tanh()\n"
        "    return h.matmul(self.w2) + self.b2\n");
    script.save(file.string());
  });
}

config::Config script_config(const files::Path& file) {
  auto config = small_config();
  config.model.name = "torchscript";
  config.model.file = file.string();
  config.data.train_samples = 100;
  config.data.eval_samples = 20;
  config.train.epochs = 0;
  config.train.steps = 12;
  config.train.log_every = 1;
  config.batch.global = 17;  // unequal shares, and a short last batch
  config.batch.micro = 5;
  config.optim.lr = 0.01;
  config.optim.clip_norm = 0.5;
  config.comm.deterministic = true;
  config.parallel.persist_below = 0;
  config.parallel.bucket_bytes = 4000;
  config.parallel.first_bucket_bytes = 1000;
  return config;
}

std::vector<monitor::Metrics> script_metrics(int ranks, const config::Config& config) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  const int port = free_port();
  as_processes(ranks, [&](int rank) {
    monitor::Console console({.write = [](std::string_view) {}});
    const train::StopRequest stop;
    train::Reporter reporter({run, console}, config.monitor,
                             {.rank = rank, .ranks = ranks});
    auto world = comm::join(
        ranks == 1 ? run::RankEnvironment() : environment_of(rank, ranks, port),
        {.config = config.comm});
    train::train(test::resolved(config), {run, reporter, stop, world});
    world.close();
  });
  return monitor::read_metrics(run.metrics());
}

}  // namespace

TEST(TorchScriptRuns, EveryStageOfZeroTrainsAsASingleProcessDoes) {
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "model.pt";
  write_script(file);
  auto config = script_config(file);
  const auto alone = script_metrics(1, config);
  ASSERT_GE(alone.size(), 12U);
  EXPECT_LT(alone[11].loss, alone[0].loss) << "it learns";
  config.parallel.strategy = config::Strategy::zero;
  for (const int stage : {1, 2, 3}) {
    config.parallel.zero_stage = stage;
    const auto together = script_metrics(2, config);
    ASSERT_EQ(together.size(), alone.size()) << stage;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(together[i].step, alone[i].step);
      // The same sum in another order, grown by twelve updates.
      EXPECT_NEAR(together[i].loss, alone[i].loss, 1e-5 * alone[i].loss)
          << "stage " << stage << ", step " << alone[i].step;
    }
  }
}

}  // namespace lockstep::test
