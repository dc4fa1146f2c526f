// What it costs to watch a run: CPU time of one line of metrics through all sinks, and
// of one sample of the machine.
#include "lockstep/monitor/telemetry.h"

#include <chrono>
#include <ctime>

#include <fmt/format.h>

#include "lockstep/base/files.h"
#include "lockstep/config/load.h"
#include "lockstep/config/print.h"
#include "lockstep/hardware/machine.h"

namespace {

using namespace lockstep;  // NOLINT: a program of one file

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// CPU and wall microseconds of one call.
template <typename Body>
std::pair<double, double> cost_of(int count, const Body& body) {
  const auto cpu = cpu_seconds();
  const auto wall = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) body(i);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - wall;
  return {1e6 * (cpu_seconds() - cpu) / count, 1e6 * passed.count() / count};
}

}  // namespace

int main() {
  const files::TemporaryDirectory place;
  const auto run = run::RunDirectory::create(
      place.path(), {.name = "0001",
                     .record = run::record_of_this_process(),
                     .config_yaml = config::to_yaml(config::defaults({}, {}), false),
                     .plan_json = "{}"});
  config::MonitorConfig config;
  config.sample_every = std::chrono::seconds(0);  // this program takes the samples
  config.sinks = {config::Sink::jsonl, config::Sink::csv, config::Sink::tensorboard,
                  config::Sink::prometheus, config::Sink::wandb};
  std::vector<int> gpus;  // all: what a run on the whole machine pays
  for (const auto& gpu : hardware::detect().gpus) gpus.push_back(gpu.index);
  monitor::Telemetry telemetry(run, config, {.gpus = gpus});
  constexpr int kLines = 5000;
  const auto [line_cpu, line_wall] = cost_of(kLines, [&](int step) {
    telemetry.metrics({.step = step,
                       .loss = 1.0 / (step + 1),
                       .more = {{"epoch", 0.5},
                                {"accuracy", 0.9},
                                {"lr", 1e-3},
                                {"samples_per_second", 5000.0},
                                {"data_wait_seconds", 0.001},
                                {"memory_bytes", std::int64_t{1} << 30},
                                {"gradient_norm", 1.5}}});
  });
  const auto [step_cpu, step_wall] =
      cost_of(1'000'000, [&](int step) { telemetry.step(step); });
  const auto [sample_cpu, sample_wall] = cost_of(500, [&](int) { telemetry.sample(); });
  telemetry.finish({.exit = 0, .steps = kLines});
  fmt::print(
      "a line through 5 sinks: {:.1f} us of CPU, {:.1f} us; the CPU time is {:.2f} % "
      "of a 10 ms step\n",
      line_cpu, line_wall, line_cpu / 100);
  fmt::print("step(): {:.3f} us of CPU, {:.3f} us\n", step_cpu, step_wall);
  fmt::print(
      "a sample of the machine: {:.1f} us of CPU, {:.1f} us; once a second that is "
      "{:.3f} % of a core\n",
      sample_cpu, sample_wall, sample_cpu / 1e4);
  return 0;
}
