// The combinations of a bench, and their numbers.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/cli/detail/bench.h"

namespace lockstep::cli {
namespace {

using config::Origin;

// Drops beyond the end of so short a run are refused, and cost no time.
void plain_schedule(jobs::Settings& settings, const config::Config& config) {
  const auto name = config.schedule.name;
  settings.set("schedule.warmup_epochs", "0", "the learning rate takes no time");
  if (name != config::Schedule::step && name != config::Schedule::multi_step) return;
  settings.set("schedule.milestones", "[]", "the learning rate takes no time");
  settings.set("schedule.name", "constant", "the learning rate takes no time");
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

// Returns for each step what the slowest rank took.
std::vector<double> slowest(const monitor::Timeline& timeline) {
  std::vector<double> steps;
  for (const auto& rank : monitor::step_seconds(timeline)) {
    steps.resize(std::max(steps.size(), rank.size()));
    for (std::size_t i = 0; i < rank.size(); ++i)
      steps[i] = std::max(steps[i], rank[i]);
  }
  return steps;
}

// Returns the samples of a step, over all ranks.
double mean_samples(const monitor::Timeline& timeline, std::size_t steps) {
  std::int64_t samples = 0;
  for (const auto& rank : timeline.ranks) {
    for (const auto& span : rank.spans) {
      if (span.kind == monitor::Span::Kind::step) samples += span.index;
    }
  }
  return static_cast<double>(samples) / static_cast<double>(steps);
}

}  // namespace

std::string BenchCase::name() const {
  return zero_stage > 0 ? str(name_of(strategy), zero_stage) : str(name_of(strategy));
}

std::string BenchCase::id() const {
  return str(name(), "_", ranks);
}

std::string BenchCase::text() const {
  return str(name(), " with ", ranks, ranks == 1 ? " rank" : " ranks");
}

std::vector<planner::Choice> shorten(config::Loaded& wanted,
                                     const BenchRequest& request) {
  jobs::Settings settings(wanted, "bench");
  for (const auto& [key, option] : {std::pair{"parallel.ranks", "--ranks"},
                                    std::pair{"parallel.strategy", "--strategies"}}) {
    if (!settings.typed(key)) continue;
    throw Error(Fault::config, "bench: ", key, " is what ", option, " lists; leave ",
                key, "=", config::get(wanted, key), " out");
  }
  const auto all = request.all_steps();
  jobs::only_steps(settings, wanted.config, all);
  plain_schedule(settings, wanted.config);
  settings.set("train.log_every", str(all), "logging is not part of what is timed");
  settings.set("profile.steps", str(request.warmup + 1, ":", all),
               "these steps are timed");
  settings.set("eval.sanity_batches", "0", "evaluation is off");
  settings.set("train.fast_dev_run", "0", "set by --steps");
  settings.set("early_stop.patience", "0", "set by --steps");
  settings.set("early_stop.divergence", "0", "set by --steps");
  settings.set("checkpoint.save_best", "false", "the weights are not needed");
  settings.set("parallel.on_setup_failure", "stop",
               "--ranks sets it for each combination");
  return settings.take();
}

planner::Plan bench_plan(const BenchCase& which, const BenchInputs& inputs) {
  auto wanted = inputs.wanted;
  const auto set = [&](const std::string& key, std::string_view value) {
    config::set(wanted, {key, std::string(value)}, {Origin::override_, "bench"});
  };
  set("parallel.ranks", str(which.ranks));
  set("parallel.strategy", name_of(which.strategy));
  if (which.zero_stage > 0) set("parallel.zero_stage", str(which.zero_stage));
  set("run.name", which.id());
  return planner::resolve(std::move(wanted), inputs.machine, inputs.knowledge);
}

BenchRow measured(const BenchCase& which, const BenchTrace& trace) {
  const auto& [plan, timeline, cores] = trace;
  const auto& config = plan.config.config;
  const auto steps = slowest(timeline);
  if (steps.empty()) throw Error(Fault::io, "the trace of the run has no steps");
  BenchRow row{.which = which,
               .error = "",
               .device = timeline.device,
               .global_batch = config.batch.global.value(),
               .threads = config.parallel.threads.value(),
               .step_seconds = median(steps)};
  row.samples_per_second = mean_samples(timeline, steps.size()) / row.step_seconds;
  double cpu_seconds = 0;
  for (const auto& rank : timeline.ranks) {
    row.peak_memory_bytes.push_back(rank.peak_memory_bytes);
    cpu_seconds += rank.cpu_seconds;
  }
  const auto elapsed = timeline.end() - timeline.begin();
  if (timeline.device == "cpu" && elapsed > 0) {
    row.busy = cpu_seconds / (elapsed * std::max(1, cores));
  }
  row.split = monitor::split_of(timeline);
  return row;
}

void add_efficiency(std::vector<BenchRow>& rows) {
  const auto alone = [&](const BenchRow& row) -> const BenchRow* {
    const BenchRow* found = nullptr;
    for (const auto& other : rows) {
      if (other.which.ranks != 1 || !other.error.empty()) continue;
      if (other.which.name() == row.which.name()) return &other;
      if (found == nullptr) found = &other;
    }
    return found;
  };
  for (auto& row : rows) {
    const auto* one = alone(row);
    if (one == nullptr || !row.error.empty()) continue;
    row.efficiency =
        row.samples_per_second / (row.which.ranks * one->samples_per_second);
  }
}

}  // namespace lockstep::cli
