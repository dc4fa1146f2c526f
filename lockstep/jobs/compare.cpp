#include "lockstep/jobs/compare.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/hardware/measured_store.h"
#include "lockstep/jobs/state_directory.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/planner/history.h"
#include "lockstep/planner/report.h"
#include "lockstep/run/events.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::jobs {
namespace {

namespace fs = std::filesystem;
using run::Comparison;

// The values from the metrics of a run; 0: not known.
struct MeasuredRun {
  double step_seconds = 0;
  double peak_bytes = 0;
  std::optional<std::int64_t> micro;  // that memory.find_micro has found
  std::optional<std::int64_t> ranks;  // that trained
  bool disturbed = false;             // it ran out of memory
};

std::optional<std::int64_t> number_in(const run::Event& event, std::string_view name) {
  for (const auto& field : event.fields) {
    const auto* number = std::get_if<std::int64_t>(&field.value);
    if (field.name == name && number != nullptr) return *number;
  }
  return std::nullopt;
}

// A CPU measurement is of the process: replicas are threads of one. memory.host_limit
// counts tensors, and the ranks have divided those among themselves.
double replicas_in(const FinishedRun& run) {
  const auto& config = run.plan.config.config;
  const bool together =
      run.plan.prediction->candidate.method == planner::Method::data_parallel &&
      config.parallel.device != config::Device::cuda && config.memory.host_limit == 0;
  return together ? run.plan.prediction->candidate.ranks : 1;
}

MeasuredRun measured_in(const run::RunDirectory& run, const FinishedRun& finished) {
  const double since = finished.started;
  MeasuredRun measured;
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
  for (const auto& event : run::last_events(run.events(), kEnough)) {
    if (event.time < since) continue;
    measured.disturbed |= event.kind == "out_of_memory";
    if (event.kind == "micro_batch") measured.micro = number_in(event, "size");
    if (event.kind == "started") measured.ranks = number_in(event, "ranks");
  }
  return measured;
}

// Returns what was predicted for the micro-batch that was found.
planner::Prediction prediction_for(const FinishedRun& run, const MeasuredRun& measured,
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

bool is_cuda(const FinishedRun& run) {
  return run.plan.config.config.parallel.device == config::Device::cuda;
}

Comparison compare(const FinishedRun& run, const MeasuredRun& measured) {
  const auto predicted = prediction_for(run, measured, run.knowledge.correction);
  const auto& memory = predicted.memory;
  return {.memory_predicted_bytes = is_cuda(run) ? memory.tensors() : memory.peak(),
          .memory_measured_bytes = measured.peak_bytes,
          .step_predicted_seconds = predicted.time.step(),
          .step_measured_seconds = measured.step_seconds,
          .step_spread = run.knowledge.correction.spread_of(predicted.time),
          .others_share = run.others_share};
}

// Leaves out corrections, so that the next one does not correct a correction.
planner::Past past_of(const FinishedRun& run, const MeasuredRun& measured) {
  const auto raw = prediction_for(run, measured, {});
  planner::Past past;
  past.model =
      planner::learnt_as(*run.knowledge.model, run.plan.config.config, run.machine);
  past.device = planner::kind_of_memory(run.plan.config.config, run.machine);
  past.date =
      iso_time(Clock::system().wall()).substr(0, std::string("2026-11-15").size());
  past.ranks = raw.candidate.ranks;
  past.micro = raw.candidate.micro;
  // A correction is for what a device computes, not of the links between them.
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
    // On a GPU a correction is for this part only: the rest is counted, not estimated.
    const double varies = raw.memory.activations + raw.memory.transient;
    past.measured_bytes -= raw.memory.tensors() - varies;
    past.predicted_bytes = varies;
  }
  return past;
}

void learn(const FinishedRun& run, const MeasuredRun& measured, const Caller& caller) {
  const auto state = state_directory(caller);
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

std::optional<run::Comparison> compare_with_plan(const FinishedRun& run,
                                                 const run::RunDirectory& directory,
                                                 const Caller& caller) {
  if (!run.plan.prediction || !run.knowledge.model) return std::nullopt;
  std::optional<Comparison> comparison;
  try {
    const auto& monitor = run.plan.config.config.monitor;
    const auto measured = measured_in(directory, run);
    if (measured.step_seconds <= 0) {
      // The run was too short to tell, or wrote no metrics.
      if (!has_metrics(monitor) && monitor.verbosity != config::Verbosity::quiet) {
        caller.say(
            "the prediction is not compared with what was measured: monitor.sinks has "
            "no jsonl, which keeps that");
      }
      return std::nullopt;
    }
    const auto planned = run.plan.prediction->candidate.ranks;
    if (measured.ranks && *measured.ranks != planned) {
      caller.say(str(*measured.ranks, " of ", planned,
                     " ranks trained: the prediction is not compared"));
      return std::nullopt;
    }
    comparison = compare(run, measured);
    auto record = directory.read_record();
    record.comparison = comparison;
    files::write_atomically(directory.record_file(), run::to_json(record));
    const auto learning = run.plan.config.config.planner.learn;
    if (learning == config::Learn::never) return comparison;
    if (learning == config::Learn::idle && comparison->is_busy()) {
      caller.say(
          fmt::format("other processes took {:.0f} % of the cores during the run, so "
                      "it is not used to correct predictions (planner.learn)",
                      100 * run.others_share));
      return comparison;
    }
    learn(run, measured, caller);
  } catch (const std::exception& problem) {
    // The run itself is done: this must not make it look otherwise.
    caller.say(str("the prediction was not kept: ", problem.what()));
  }
  return comparison;
}

}  // namespace lockstep::jobs
