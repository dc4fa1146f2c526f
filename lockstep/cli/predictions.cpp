// After a run: how right its plan was, and what the next one learns from it.
#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/plan.h"
#include "lockstep/cli/detail/state.h"
#include "lockstep/hardware/measured_store.h"
#include "lockstep/monitor/events.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/planner/history.h"
#include "lockstep/planner/report.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using monitor::Comparison;

// What the metrics of a run say; 0: nothing.
struct Measured {
  double step_seconds = 0;
  double peak_bytes = 0;
  std::optional<std::int64_t> micro;  // that memory.find_micro has found
  std::optional<std::int64_t> ranks;  // that trained
  bool disturbed = false;             // it ran out of memory
};

std::optional<std::int64_t> number_in(const monitor::Event& event,
                                      std::string_view name) {
  for (const auto& field : event.fields) {
    const auto* number = std::get_if<std::int64_t>(&field.value);
    if (field.name == name && number != nullptr) return *number;
  }
  return std::nullopt;
}

// On a CPU it is the process that is measured: replicas are threads of one.
// memory.host_limit counts tensors, and the ranks have divided those among themselves.
double replicas_in(const Finished& run) {
  const auto& config = run.plan.config.config;
  const bool together =
      run.plan.prediction->candidate.method == planner::Method::data_parallel &&
      config.parallel.device != config::Device::cuda && config.memory.host_limit == 0;
  return together ? run.plan.prediction->candidate.ranks : 1;
}

Measured measured_in(const monitor::RunDirectory& run, const Finished& finished) {
  const double since = finished.started;
  Measured measured;
  std::vector<double> steps;
  for (const auto& line : monitor::read_metrics(run.metrics())) {
    if (line.time < since) continue;
    measured.peak_bytes =
        std::max(measured.peak_bytes, line.find("memory_peak_bytes").value_or(0));
    if (line.split != monitor::Split::train) continue;
    // The first step sets things up.
    const auto seconds = line.find("step_seconds");
    if (line.step > 1 && seconds) steps.push_back(*seconds);
  }
  measured.peak_bytes /= replicas_in(finished);
  if (!steps.empty()) {
    std::sort(steps.begin(), steps.end());
    measured.step_seconds = steps[steps.size() / 2];
  }
  constexpr std::size_t kEnough = 1000;
  for (const auto& event : monitor::last_events(run.events(), kEnough)) {
    if (event.time < since) continue;
    measured.disturbed |= event.kind == "out_of_memory";
    if (event.kind == "micro_batch") measured.micro = number_in(event, "size");
    if (event.kind == "started") measured.ranks = number_in(event, "ranks");
  }
  return measured;
}

// What was predicted for the micro-batch that it came to be.
planner::Prediction prediction_for(const Finished& run, const Measured& measured,
                                   const planner::Correction& correction) {
  auto candidate = run.plan.prediction->candidate;
  if (measured.micro && *measured.micro > 0) {
    const auto share = candidate.micro * candidate.accumulation;
    candidate.micro = std::min(share, *measured.micro);
    candidate.accumulation = (share + candidate.micro - 1) / candidate.micro;
  }
  return planner::predict(
      {run.plan.config.config, run.machine, *run.knowledge.model, correction},
      candidate);
}

bool has_metrics(const config::MonitorConfig& monitor) {
  return std::find(monitor.sinks.begin(), monitor.sinks.end(), config::Sink::jsonl) !=
         monitor.sinks.end();
}

bool is_cuda(const Finished& run) {
  return run.plan.config.config.parallel.device == config::Device::cuda;
}

Comparison compare(const Finished& run, const Measured& measured) {
  const auto predicted = prediction_for(run, measured, run.knowledge.correction);
  const auto& memory = predicted.memory;
  return {.memory_predicted_bytes = is_cuda(run) ? memory.tensors() : memory.peak(),
          .memory_measured_bytes = measured.peak_bytes,
          .step_predicted_seconds = predicted.time.step(),
          .step_measured_seconds = measured.step_seconds,
          .step_spread = run.knowledge.correction.spread_of(predicted.time)};
}

std::string error_of(double predicted, double measured) {
  return measured > 0 ? fmt::format("{:+.0f} %", 100 * (predicted / measured - 1)) : "";
}

std::string text_of(const Comparison& c) {
  const auto bytes = [](double value) {
    return value > 0 ? units::format_bytes(static_cast<std::int64_t>(value))
                     : std::string("n/a");
  };
  const auto time = [](double value) {
    return value > 0 ? planner::seconds_text(value) : std::string("n/a");
  };
  return text::table(
      {{"", "predicted", "measured", "error"},
       {"memory of a rank", bytes(c.memory_predicted_bytes),
        bytes(c.memory_measured_bytes),
        error_of(c.memory_predicted_bytes, c.memory_measured_bytes)},
       {"time of a step", time(c.step_predicted_seconds), time(c.step_measured_seconds),
        error_of(c.step_predicted_seconds, c.step_measured_seconds)}},
      {1, 2, 3});
}

// Without corrections, so that the next one does not correct a correction.
planner::Past past_of(const Finished& run, const Measured& measured) {
  const auto raw = prediction_for(run, measured, {});
  planner::Past past;
  past.model = run.knowledge.model->name;
  past.device = planner::kind_of_memory(run.plan.config.config, run.machine);
  past.date =
      iso_time(Clock::system().wall()).substr(0, std::string("2026-11-15").size());
  past.ranks = raw.candidate.ranks;
  past.micro = raw.candidate.micro;
  // A correction is of what a device computes, not of the links between them.
  past.host_bound = raw.time.host_bound;
  past.predicted_seconds = raw.time.compute;
  double others = raw.time.exposed + raw.time.wait + raw.time.offload;
  (past.host_bound ? others : past.predicted_seconds) += raw.time.update;
  constexpr double kAtLeast = 0.1;  // of the step is computing
  past.measured_seconds =
      std::max(kAtLeast * measured.step_seconds, measured.step_seconds - others);
  past.predicted_bytes = raw.memory.tensors();
  past.measured_bytes = measured.disturbed ? 0 : measured.peak_bytes;
  if (is_cuda(run)) {
    // Of a GPU, the part that a correction is of: the rest is counted, not estimated.
    const double varies = raw.memory.activations + raw.memory.transient;
    past.measured_bytes -= raw.memory.tensors() - varies;
    past.predicted_bytes = varies;
  }
  return past;
}

void learn(const Finished& run, const Measured& measured, const Context& context) {
  const auto state = state_directory(context);
  if (state.empty()) return;
  const auto file =
      hardware::machine_directory(state, run.machine) / "predictions.json";
  std::vector<planner::Past> runs;
  std::error_code ignored;
  constexpr std::int64_t kLargestFile = 64 << 20;
  if (fs::exists(file, ignored)) {
    runs = planner::past_from_json(files::read(file, kLargestFile));
  }
  planner::remember(runs, past_of(run, measured));
  fs::create_directories(file.parent_path());
  files::write_atomically(file, planner::to_json(runs));
}

}  // namespace

void compare_with_plan(const Finished& run, const monitor::RunDirectory& directory,
                       Context& context) {
  if (!run.plan.prediction || !run.knowledge.model) return;
  try {
    const auto& monitor = run.plan.config.config.monitor;
    const auto measured = measured_in(directory, run);
    if (measured.step_seconds <= 0) {
      // Too short to tell, or not written down.
      if (!has_metrics(monitor) && monitor.verbosity != config::Verbosity::quiet) {
        context.err << "lockstep: the prediction is not compared with what was "
                       "measured: monitor.sinks has no jsonl, which keeps that\n";
      }
      return;
    }
    const auto planned = run.plan.prediction->candidate.ranks;
    if (measured.ranks && *measured.ranks != planned) {
      context.err << "lockstep: " << *measured.ranks << " of " << planned
                  << " ranks trained: the prediction is not compared\n";
      return;
    }
    const auto comparison = compare(run, measured);
    auto record = directory.read_record();
    record.comparison = comparison;
    files::write_atomically(directory.record_file(), monitor::to_json(record));
    if (monitor.verbosity != config::Verbosity::quiet) {
      context.err << text_of(comparison);
    }
    learn(run, measured, context);
  } catch (const std::exception& problem) {
    // The run itself is done: this must not make it look otherwise.
    context.err << "lockstep: the prediction was not kept: "
                << printable(problem.what()) << "\n";
  }
}

}  // namespace lockstep::cli
