// How fast is one training step of the CNN? Prints one JSON line, as the peer's side
// does.
//
//   bench_cnn_step BATCH STEPS [THREADS]
//
// One fixed batch of bytes, as a loader hands it over: normalising it is part of the
// step, which the peer, fed with floats, does not have to do.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include "lockstep/base/memory.h"
#include "lockstep/task/build.h"
#include "lockstep/train/device.h"
#include "lockstep/train/step.h"

using namespace lockstep;  // NOLINT: a program of one file

int main(int argc, char** argv) {
  keep_freed_memory();  // as every worker does
  const std::int64_t batch_size = argc > 1 ? std::atol(argv[1]) : 128;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 50;
  at::set_num_threads(argc > 3 ? std::atoi(argv[3]) : 1);
  torch::manual_seed(0);

  const data::SampleSpec spec{
      .shape = {1, 28, 28}, .num_classes = 10, .scale = 1 / 128.0F, .shift = -1};
  const auto model = models::build({.name = "cnn"}, {spec.shape, spec.num_classes});
  train::use_layout(*model);
  config::Config config;
  config.parallel.strategy = config::Strategy::single;
  auto world = comm::join({}, {});
  const auto strategy = parallel::make_strategy(config, *model, world);
  const auto task = task::make_task(config, spec, {});
  train::Step step({model,
                    task,
                    *strategy,
                    {config::Precision::fp32, torch::kCPU},
                    spec,
                    batch_size});
  task::Tally tally(task, torch::kCPU);
  const data::Batch batch{
      .global_size = batch_size,
      .size = batch_size,
      .inputs = torch::randint(256, {batch_size, 1, 28, 28}, torch::kUInt8),
      .targets = torch::randint(10, {batch_size}, torch::kInt64)};

  std::vector<double> times;
  for (int i = 0; i < steps + 4; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    strategy->begin_step();
    step.backward(batch, tally);
    strategy->finish();
    strategy->update({.lr = 1e-3});
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (i >= 4) times.push_back(time.count());
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  fmt::print(
      "{{\"who\":\"lockstep\",\"model\":\"cnn\",\"batch\":{},\"threads\":{},"
      "\"ms\":{:.3f},\"samples_s\":{:.1f}}}\n",
      batch_size, at::get_num_threads(), median * 1e3,
      static_cast<double>(batch_size) / median);
  return 0;
}
