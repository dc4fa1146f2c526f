#include <algorithm>
#include <set>

#include <ATen/Parallel.h>

#include "lockstep/base/clock.h"
#include "lockstep/describe/detail/subject.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/memory/device_memory.h"
#include "lockstep/precision/policy.h"
#include "lockstep/train/step.h"

namespace lockstep::describe::detail {
namespace {

// What a rank usually computes at once, as far as memory goes.
constexpr std::int64_t kMostSamples = 32;
constexpr double kMostBytes = 256 << 20;
constexpr double kEnoughSeconds = 0.4;

void compute(const Subject& subject, const data::Batch& samples) {
  const precision::Policy policy{config::Precision::fp32, torch::kCPU};
  auto stage = stage_of(subject, samples.size, policy.device);
  const auto& staged = stage.stage(samples, 0, samples.size);
  const auto outputs = train::Forward(subject.model, policy)(staged);
  auto losses = subject.task.sums(outputs, staged, {true, policy.loss_dtype()});
  for (std::size_t i = 1; i < losses.size(); ++i) losses[0] = losses[0] + losses[i];
  losses[0].backward();
}

// Returns the fastest of several passes: others may be computing here, too.
double seconds_of_pass(const Subject& subject, const data::Batch& samples) {
  const auto& clock = Clock::system();
  double all = 0, least = 0;
  for (int i = 0; i < 2 || all < kEnoughSeconds; ++i) {
    const auto begin = clock.now();
    compute(subject, samples);
    const double seconds = seconds_between(begin, clock.now());
    all += seconds;
    if (i > 0) least = least > 0 ? std::min(least, seconds) : seconds;  // 0 sets up
  }
  return least;
}

// Returns the bytes of tensors of a pass in training, weights and gradients included.
double bytes_of_pass(const run::ModelDescription& described,
                     run::Footprint run::Footprints::*precision, std::int64_t samples) {
  constexpr double kWeightAndGradient = 2 * sizeof(float);
  double bytes = kWeightAndGradient * static_cast<double>(described.num_parameters()) +
                 static_cast<double>(described.sample_bytes * samples) +
                 (described.backward.*precision).at(samples);
  for (const auto& unit : described.units) {
    bytes += unit.count * (unit.kept.*precision).at(samples);
  }
  return bytes;
}

std::int64_t samples_to_try(const run::ModelDescription& described) {
  double of_sample = static_cast<double>(described.backward.fp32.per_sample_bytes);
  for (const auto& unit : described.units) {
    of_sample += unit.count * static_cast<double>(unit.kept.fp32.per_sample_bytes);
  }
  const auto most = static_cast<std::int64_t>(kMostBytes / std::max(1.0, of_sample));
  return std::clamp<std::int64_t>(most, 2, kMostSamples);
}

}  // namespace

void add_trials(run::ModelDescription& described, const Subject& subject,
                std::int64_t largest) {
  const auto machine = hardware::detect();
  const auto samples =
      data::made_up_batch(subject.spec, samples_to_try(described), torch::kCPU);
  subject.model.train();
  const int before = at::get_num_threads();
  for (const int threads : std::set<int>{1, machine.physical_cores}) {
    at::set_num_threads(threads);
    described.trials.push_back({.threads = threads,
                                .samples = samples.size,
                                .seconds = seconds_of_pass(subject, samples)});
  }
  at::set_num_threads(before);
  described.cpu_model = machine.cpu_model;
  largest = std::max(largest, samples.size);
  const double tensors =
      std::max(bytes_of_pass(described, &run::Footprints::fp32, largest),
               bytes_of_pass(described, &run::Footprints::half, largest));
  described.process_bytes =
      std::max<std::int64_t>(0, memory::memory_of(torch::kCPU).peak_bytes -
                                    static_cast<std::int64_t>(tensors));
}

}  // namespace lockstep::describe::detail
