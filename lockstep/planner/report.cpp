#include "lockstep/planner/report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/planner/policies.h"

namespace lockstep::planner {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string clock_text(double seconds) {
  constexpr double kMost = 1e9;  // thirty years
  return units::format_clock(
      std::chrono::seconds(std::llround(std::min(seconds, kMost))));
}

std::string percent(double share) {
  return fmt::format("{:.0f} %", 100 * share);
}

std::string indented(const std::string& lines) {
  std::string text;
  for (const auto& line : text::split(lines, '\n')) {
    if (!line.empty()) text += "  " + line + "\n";
  }
  return text;
}

std::string machine_text(const hardware::Machine& machine) {
  if (machine.gpus.empty()) {
    return fmt::format("{} cores, no GPU", machine.physical_cores);
  }
  const auto& gpu = machine.gpus[0];
  return fmt::format("{} x {} ({}), {} cores", machine.gpus.size(), gpu.name,
                     units::format_bytes(gpu.memory_total_bytes),
                     machine.physical_cores);
}

std::string choices_text(const Plan& plan) {
  Rows rows;
  for (const auto& [key, value, because] : plan.choices) {
    rows.push_back({key + " = " + value, "# " + because});
  }
  return rows.empty() ? "" : "\nchosen\n" + indented(text::table(rows));
}

std::string error_text(const Correction& correction, const TimeCost& time) {
  if (correction.runs == 0 && !correction.trials.empty()) {
    return "unknown: no measured run of this model on this machine yet; compute time "
           "is from a short trial on it";
  }
  if (correction.runs == 0) {
    return "unknown: no measured run of this model on this machine yet";
  }
  const double off = 1 + correction.spread_of(time);
  return fmt::format(
      "step {} to {}, memory within {} of it: spread of {} earlier run{}",
      seconds_text(time.step() / off), seconds_text(time.step() * off),
      percent(correction.memory_spread), correction.runs,
      correction.runs == 1 ? "" : "s");
}

// Returns the terms of a step's time; a rank that is alone exchanges nothing.
std::string step_text(const Prediction& p) {
  const auto& t = p.time;
  auto text = fmt::format(
      "{} = compute {}{} + optimizer {}", seconds_text(t.step()),
      seconds_text(t.compute),
      t.host_bound ? " (launch-bound: the host is slower than the GPU)" : "",
      seconds_text(t.update));
  if (p.candidate.ranks > 1) {
    const bool shards = stage_of(p.candidate.method) > 0;
    text += fmt::format(" + {} {} exposed of {} + straggler wait {}",
                        shards ? "reduce-scatter and all-gather" : "all-reduce",
                        seconds_text(t.exposed), seconds_text(t.exchange),
                        seconds_text(t.wait));
  }
  if (t.offload > 0) text += " + offload " + seconds_text(t.offload);
  return t.data_wait > 0 ? text + " + data wait " + seconds_text(t.data_wait) : text;
}

std::string prediction_text(const Plan& plan) {
  const auto& p = *plan.prediction;
  const auto& t = p.time;
  Rows rows;
  rows.push_back({"memory", terms_of(p.memory) + " a rank"});
  rows.push_back({"limit", p.limit > 0 ? str(units::format_bytes(p.limit), " = ",
                                             plan.limit_because)
                                       : "not known"});
  rows.push_back({"step", step_text(p)});
  rows.push_back(
      {"loading", fmt::format("{} in {} thread{} of a rank, {}", seconds_text(t.load),
                              t.workers, t.workers == 1 ? "" : "s",
                              t.data_wait > 0 ? "not hidden by the step"
                                              : "hidden behind the step")});
  rows.push_back({"bottleneck", plan.bottleneck});
  rows.push_back({"speed", units::format_rate(p.samples_per_second) + " samples/s"});
  rows.push_back(
      {"total", plan.seconds
                    ? clock_text(*plan.seconds)
                    : "unknown: the dataset is not here, so an epoch has no length"});
  rows.push_back({"error", error_text(plan.correction, t)});
  return "\npredicted\n" + indented(text::table(rows));
}

std::string scaling_text(const Plan& plan) {
  const bool on_gpu = plan.config.config.parallel.device == config::Device::cuda;
  Rows rows{{"ranks", "speed-up", "efficiency", "usually", ""}};
  for (const auto& [ranks, speed_up, lacks] : plan.scaling) {
    const auto usual = on_gpu ? usual_speed_up(ranks) : 0;
    rows.push_back({str(ranks), fmt::format("{:.2f}", speed_up),
                    percent(speed_up / ranks),
                    usual > 0 ? fmt::format("{:.1f}", usual) : "-",
                    lacks.empty() ? "" : "does not fit: " + lacks});
  }
  return "\nweak scaling: more ranks, same batch.per_rank\n" +
         indented(text::table(rows, {0, 1, 2, 3}));
}

std::string list_text(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = "\n" + title + "\n";
  for (const auto& line : lines) text += "  " + line + "\n";
  return text;
}

std::string environment_text(const Plan& plan) {
  Rows rows;
  for (const auto& [name, value, because] : plan.environment) {
    rows.push_back({name + "=" + value, "# " + because});
  }
  return rows.empty() ? ""
                      : "\nenvironment of the ranks (what is set already is kept)\n" +
                            indented(text::table(rows));
}

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.1f} ms", 1e3 * seconds);
  return fmt::format("{:.0f} us", 1e6 * seconds);
}

std::string candidate_table(const std::vector<CandidateOutcome>& candidates, bool all) {
  Rows rows{{"", "strategy", "ranks", "micro", "accum", "recompute", "offload",
             "memory", "step", "samples/s", "why not"}};
  std::set<std::tuple<Method, int, int>> seen;
  for (const auto& [prediction, lost] : candidates) {
    const auto& c = prediction.candidate;
    const bool first = seen.emplace(c.method, c.ranks, c.shard_group).second;
    if (!all && !first && !lost.empty()) continue;
    const auto groups = c.shard_group > 0 ? str(" in ", c.shard_group, "s") : "";
    rows.push_back({lost.empty() ? "*" : "", str(name_of(c.method), groups),
                    str(c.ranks), str(c.micro), str(c.accumulation),
                    c.recompute ? "yes" : "no", c.offload ? "yes" : "no",
                    units::format_bytes(prediction.memory.peak()),
                    seconds_text(prediction.time.step()),
                    units::format_rate(prediction.samples_per_second), lost});
  }
  return text::table(rows, {2, 3, 4, 7, 8, 9});
}

std::string summary(const Plan& plan) {
  if (!plan.prediction) return "";
  const auto& p = *plan.prediction;
  const auto& c = plan.correction;
  return fmt::format(
      "{} a rank, {} a step, {} samples/s{}{}", units::format_bytes(p.memory.peak()),
      seconds_text(p.time.step()), units::format_rate(p.samples_per_second),
      plan.seconds ? ", " + clock_text(*plan.seconds) + " total" : "",
      c.runs > 0 ? fmt::format(" ({} to {} a step by {} earlier run{})",
                               seconds_text(p.time.step() / (1 + c.spread_of(p.time))),
                               seconds_text(p.time.step() * (1 + c.spread_of(p.time))),
                               c.runs, c.runs == 1 ? "" : "s")
                 : "");
}

std::string report(const Plan& plan, const hardware::Machine& machine, bool all) {
  auto text = fmt::format("plan for {} on {}\n",
                          plan.model.empty() ? "an unknown model" : plan.model,
                          machine_text(machine));
  text += choices_text(plan);
  if (plan.prediction) {
    text += prediction_text(plan) + scaling_text(plan);
    text += "\ncandidates\n" + indented(candidate_table(plan.candidates, all));
  }
  return text + list_text("what if", plan.hints) + environment_text(plan) +
         list_text("notes", plan.notes);
}

}  // namespace lockstep::planner
