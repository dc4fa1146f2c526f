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

double seconds_of(const Subject& subject, const data::Batch& samples) {
  const auto& clock = Clock::system();
  const auto begin = clock.now();
  compute(subject, samples);
  return seconds_between(begin, clock.now());
}

// Returns the fastest of several passes: others may be computing here, too.
double fastest_pass(const Subject& subject, const data::Batch& samples) {
  seconds_of(subject, samples);  // sets up
  double least = seconds_of(subject, samples);
  for (double all = least; all < kEnoughSeconds;) {
    const double seconds = seconds_of(subject, samples);
    least = std::min(least, seconds);
    all += seconds;
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

// Returns as many as fit into memory and time.
std::int64_t samples_to_try(const run::ModelDescription& described,
                            const Subject& subject) {
  double of_sample = static_cast<double>(described.backward.fp32.per_sample_bytes);
  for (const auto& unit : described.units) {
    of_sample += unit.count * static_cast<double>(unit.kept.fp32.per_sample_bytes);
  }
  const auto most = static_cast<std::int64_t>(kMostBytes / std::max(1.0, of_sample));
  constexpr std::int64_t kFew = 2;
  const auto few = data::made_up_batch(subject.spec, kFew, torch::kCPU);
  seconds_of(subject, few);
  const double seconds = std::max(1e-6, seconds_of(subject, few));
  const auto in_time = static_cast<std::int64_t>(kFew * kEnoughSeconds / 2 / seconds);
  return std::clamp(std::min(most, in_time), kFew, kMostSamples);
}

}  // namespace

void add_trials(run::ModelDescription& described, const Subject& subject,
                std::int64_t largest) {
  const auto machine = hardware::detect();
  subject.model.train();
  const auto samples = data::made_up_batch(
      subject.spec, samples_to_try(described, subject), torch::kCPU);
  const int before = at::get_num_threads();
  for (const int threads : std::set<int>{1, machine.physical_cores}) {
    at::set_num_threads(threads);
    described.trials.push_back({.threads = threads,
                                .samples = samples.size,
                                .seconds = fastest_pass(subject, samples)});
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
