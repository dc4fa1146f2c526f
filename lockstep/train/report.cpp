#include "lockstep/train/report.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <signal.h>

#include "lockstep/base/log.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/models/summary.h"

namespace lockstep::train {
namespace {

using run::NamedValue;

bool has(const config::MonitorConfig& config, config::Sink sink) {
  return std::find(config.sinks.begin(), config.sinks.end(), sink) !=
         config.sinks.end();
}

std::string shown(const task::MetricValue& metric) {
  return metric.is_share ? fmt::format("{:.2f} %", 100 * metric.value)
                         : fmt::format("{:.4f}", metric.value);
}

const task::MetricValue* metric_of(const task::Means& means, const std::string& name) {
  const auto found = std::find_if(means.values.begin(), means.values.end(),
                                  [&](const auto& one) { return one.name == name; });
  return found == means.values.end() ? nullptr : &*found;
}

// Returns every loss by its name, where there are several, and the metric that counts.
std::string shown_beside_loss(const task::Means& means, const std::string& primary) {
  std::string text;
  for (const auto& one : means.values) {
    const bool is_loss = one.name.starts_with("loss_");
    if (!is_loss && one.name != primary) continue;
    if (!text.empty()) text += "  ";
    text += one.name + " " + shown(one);
  }
  return text;
}

std::string device_memory(const memory::DeviceMemory& memory) {
  return fmt::format("{} allocated, {} reserved, of {}",
                     units::format_bytes(memory.allocated_bytes),
                     units::format_bytes(memory.reserved_bytes),
                     units::format_bytes(memory.total_bytes));
}

double rate(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::vector<NamedValue> split_fields(const monitor::PhaseSplit& split) {
  std::vector<NamedValue> fields{{"profile_steps", split.steps},
                                 {"profile_step_seconds", split.step_seconds}};
  for (std::size_t p = 0; p < monitor::kNumPhases; ++p) {
    const auto phase = static_cast<monitor::StepPhase>(p);
    fields.push_back(
        {fmt::format("profile_{}_seconds", monitor::name_of(phase)), split.of(phase)});
  }
  fields.push_back({"profile_travel_seconds", split.travel_seconds});
  return fields;
}

std::vector<files::Path> heartbeat_files(const run::RunDirectory& run) {
  std::vector<files::Path> paths{std::filesystem::absolute(run.heartbeat())};
  auto launchers = run::launcher_heartbeat();
  if (!launchers.empty() && launchers != paths[0])
    paths.push_back(std::move(launchers));
  return paths;
}

std::string how_it_ended(const Result& result) {
  if (result.stopped_by != 0) {
    return fmt::format("stopped by {} after step {}",
                       process::signal_name(result.stopped_by), result.steps);
  }
  if (!result.already_over.empty()) return result.already_over;
  if (!result.ended_early.empty()) return result.ended_early;
  return result.out_of_time ? "train.max_time reached" : "done";
}

// Returns both times: that of this attempt, and that of the run in all.
std::string time_of(const Result& result) {
  const double here = result.train_seconds - result.earlier_train_seconds;
  if (result.earlier_train_seconds == 0) {
    return fmt::format("{:.1f} s, training time {:.1f} s", result.seconds, here);
  }
  return fmt::format(
      "{:.1f} s since resuming, training time {:.1f} s; {:.1f} s over all "
      "attempts",
      result.seconds, here, result.train_seconds);
}

// Divides by the steps of this attempt: only theirs were timed.
double a_step(const Result& result, double seconds) {
  const auto made = result.steps - result.resumed_at.value_or(0);
  return seconds / static_cast<double>(std::max<std::int64_t>(made, 1));
}

std::string nothing_to_do(const Result& result) {
  return fmt::format(
      "nothing to do: the run finished at step {} ({}), and nothing was changed; raise "
      "train.steps or train.epochs{} to continue, or name another run directory to "
      "start over\n",
      result.steps, result.already_over,
      result.ended_early.empty() ? "" : ", or change early_stop,");
}

}  // namespace

std::string model_table(const models::Model& model) {
  std::vector<std::vector<std::string>> rows{{"layer", "type", "parameters", "size"}};
  std::int64_t total = 0;
  std::int64_t trainable = 0;
  std::int64_t bytes = 0;
  for (const auto& layer : models::summarize(model)) {
    rows.push_back({layer.name, layer.type, text::with_commas(layer.num_parameters),
                    units::format_bytes(layer.num_bytes)});
    total += layer.num_parameters;
    trainable += layer.num_trainable;
    bytes += layer.num_bytes;
  }
  rows.push_back({"total", fmt::format("{} trainable", text::with_commas(trainable)),
                  text::with_commas(total), units::format_bytes(bytes)});
  return text::table(rows, {2, 3});
}

std::string to_table(const Result& result) {
  std::vector<std::vector<std::string>> rows{{"result", how_it_ended(result)}};
  if (result.is_modelled) rows.push_back({"network", "modelled"});
  if (result.eval) {
    const auto& eval = *result.eval;
    const auto of = result.eval_is_of_average ? " (of the average, ema)" : "";
    if (const auto* primary = metric_of(eval, result.primary)) {
      rows.push_back({"test " + primary->name, shown(*primary) + of});
      auto best = *primary;
      best.value = result.best.value_or(best.value);
      rows.push_back({"best " + primary->name, shown(best)});
    }
    rows.push_back({"test loss", fmt::format("{:.4f}", eval.loss)});
    for (const auto& one : eval.values) {
      if (one.name == result.primary || one.is_detail) continue;
      rows.push_back({"test " + one.name, shown(one)});
    }
    rows.push_back(
        {"tested on", fmt::format("{} samples", text::with_commas(eval.count))});
  }
  if (result.train_loss)
    rows.push_back({"train loss", fmt::format("{:.4f}", *result.train_loss)});
  rows.push_back(
      {"steps", fmt::format("{} ({} samples)", text::with_commas(result.steps),
                            text::with_commas(result.samples))});
  rows.push_back({"time", time_of(result)});
  rows.push_back({"speed", fmt::format("{} samples/s",
                                       units::format_rate(rate(
                                           result.samples, result.train_seconds)))});
  if (result.forward_seconds > 0) {
    const auto ms = [&](double seconds) { return 1e3 * a_step(result, seconds); };
    rows.push_back(
        {"passes",
         fmt::format("forward {:.2f} ms, backward {:.2f} ms a step",
                     ms(result.forward_seconds), ms(result.backward_seconds))});
  }
  for (std::size_t r = 0; r < result.memory.size(); ++r) {
    rows.push_back({result.memory.size() == 1 ? "memory" : fmt::format("rank {}", r),
                    device_memory(result.memory[r])});
  }
  if (result.skipped > 0) {
    rows.push_back({"skipped", fmt::format("{} steps with gradients that were not "
                                           "finite",
                                           result.skipped)});
  }
  if (!result.weights.empty()) rows.push_back({"weights", result.weights});
  if (!result.average.empty()) rows.push_back({"average", result.average});
  if (!result.split) return text::table(rows);
  return text::table(rows) + "\n" + monitor::to_table(*result.split);
}

std::string to_json(const Result& result) {
  std::vector<NamedValue> fields{
      {"state", std::string(result.stopped_by != 0 ? "stopped" : "done")},
      {"reason", how_it_ended(result)},
      {"steps", result.steps},
      {"samples", result.samples},
      {"seconds", result.seconds},
      {"train_seconds", result.train_seconds},
      {"earlier_train_seconds", result.earlier_train_seconds},
      {"samples_per_second", rate(result.samples, result.train_seconds)}};
  if (result.train_loss) fields.push_back({"train_loss", *result.train_loss});
  if (result.eval) {
    fields.push_back({"eval_loss", result.eval->loss});
    fields.push_back({"eval_samples", result.eval->count});
    if (result.eval_is_of_average)
      fields.push_back({"eval_of", std::string("average")});
    fields.push_back({"primary", result.primary});
    if (result.best) fields.push_back({"best_" + result.primary, *result.best});
    for (const auto& one : result.eval->values) {
      fields.push_back({"eval_" + one.name, one.value});
    }
  }
  if (result.skipped > 0) fields.push_back({"skipped_steps", result.skipped});
  if (result.forward_seconds > 0) {
    fields.push_back({"forward_seconds", a_step(result, result.forward_seconds)});
    fields.push_back({"backward_seconds", a_step(result, result.backward_seconds)});
  }
  if (result.split) {
    const auto more = split_fields(*result.split);
    fields.insert(fields.end(), more.begin(), more.end());
  }
  if (!result.memory.empty()) {
    fields.push_back({"memory_bytes", result.memory[0].allocated_bytes});
  }
  fields.push_back({"weights", result.weights});
  if (!result.average.empty()) fields.push_back({"average", result.average});
  if (result.is_modelled) fields.push_back({"backend", result.backend});
  return run::to_json_line(fields);
}

Reporter::Reporter(const Outputs& outputs, const config::MonitorConfig& config,
                   const Who& who)
    : console_(outputs.console),
      first_(who.rank == 0),
      is_replica_(who.is_replica),
      quiet_(config.verbosity == config::Verbosity::quiet),
      show_(first_ && has(config, config::Sink::console) && !quiet_) {
  const auto& run = outputs.run;
  const bool beats = first_ || !is_replica_;
  for (const auto& path : beats ? heartbeat_files(run) : std::vector<files::Path>()) {
    heartbeats_.push_back(std::make_unique<run::HeartbeatWriter>(
        path, run::HeartbeatSlot{who.rank, is_replica_ ? 1 : who.ranks}));
  }
  if (first_) events_.emplace(run.events());
  if (first_) efficiency_ = monitor::read_efficiency(run.plan());
  // It is opened later: a run that turns out to be over leaves its files as they are.
  if (first_) {
    open_telemetry_ = [this, run, config, gpus = who.gpus] {
      // A hint for the user is no progress: it is printed without `console`, too.
      const auto say = [this](const std::string& note) {
        if (!quiet_) console_.print(note + "\n");
      };
      telemetry_ = std::make_unique<monitor::Telemetry>(
          run, config,
          monitor::Telemetry::Site{
              .gpus = gpus,
              .say = say,
              .primary = {primary_.name, primary_.better == task::Better::more}});
    };
  }
  beat(0, run::Phase::starting);
}

monitor::Telemetry& Reporter::telemetry() {
  if (!telemetry_) open_telemetry_();
  return *telemetry_;
}

void Reporter::model(const models::Model& model) {
  if (show_) console_.print(model_table(model));
}

void Reporter::started(std::int64_t total_steps, int ranks) {
  beat(0, run::Phase::training);
  if (!first_) return;
  const auto attempt = telemetry().attempt();  // counts those before
  events_->write("started", {{"rank", std::int64_t{0}},
                             {"total_steps", total_steps},
                             {"ranks", std::int64_t{ranks}},
                             {"attempt", attempt}});
  console_.start();
}

// Returns the numbers of the windows (train/window.h), and those derived from them.
std::vector<NamedValue> Reporter::fields_of(const TrainReport& report) const {
  std::vector<NamedValue> more{{"epoch", report.epoch},
                               {"lr", report.lr},
                               {"samples_per_second", report.samples_per_second()}};
  for (auto& one : train::fields_of(report.ranks, report.steps)) {
    more.push_back(std::move(one));
  }
  for (const auto& one : report.means.values) more.push_back({one.name, one.value});
  const auto add = [&](bool is_known, const char* name, auto value) {
    if (is_known) more.push_back({name, value});
  };
  add(report.targets_are_tokens, "tokens_per_second", report.tokens_per_second());
  add(report.steps > 0, "step_seconds", report.step_seconds());
  add(efficiency_.has_value(), "mfu_ratio",
      efficiency_ ? efficiency_->of(report.samples_per_second()) : 0);
  add(checkpoint_seconds_.has_value(), "checkpoint_seconds",
      checkpoint_seconds_.value_or(0));
  add(report.gradient_norm.has_value(), "gradient_norm",
      report.gradient_norm.value_or(0));
  add(report.is_modelled, "backend", report.backend);
  if (const auto& late = report.straggler) {
    more.push_back({"straggler_rank", std::int64_t{late->rank}});
    more.push_back({"straggler_seconds", late->late_seconds});
  }
  return more;
}

void Reporter::train(const TrainReport& report) {
  const auto& own = report.ranks.at(0);
  if (first_) {
    telemetry().metrics({.step = report.step,
                         .split = monitor::Split::train,
                         .loss = report.means.loss,
                         .more = fields_of(report)});
  }
  if (first_ && !told_memory_) {
    for (std::size_t r = 0; r < report.ranks.size(); ++r) {
      memory(static_cast<std::int64_t>(r), report.ranks[r].memory);
    }
    told_memory_ = true;
  }
  if (show_) {
    console_.progress({.step = report.step,
                       .total_steps = report.total_steps,
                       .loss = report.means.loss,
                       .metrics = shown_beside_loss(report.means, primary_.name),
                       .lr = report.lr,
                       .samples_per_second = report.samples_per_second(),
                       .memory_bytes = own.memory.allocated_bytes});
    if (report.step == report.total_steps) console_.finish();
  }
}

void Reporter::eval(const EvalReport& report) {
  std::vector<NamedValue> more{{"epoch", report.epoch},
                               {"samples", report.means.count},
                               {"seconds", report.seconds},
                               {"primary", primary_.name}};
  if (report.memory_peak_bytes > 0) {
    more.push_back({"memory_peak_bytes", report.memory_peak_bytes});
  }
  for (const auto& one : report.means.values) more.push_back({one.name, one.value});
  if (first_) {
    telemetry().metrics({.step = report.step,
                         .split = monitor::Split::eval,
                         .loss = report.means.loss,
                         .more = std::move(more)});
  }
  if (!show_) return;
  std::string others;
  for (const auto& one : report.means.values) {
    if (one.name == primary_.name || one.is_detail) continue;
    others += "  " + one.name + " " + shown(one);
  }
  const auto* primary = metric_of(report.means, primary_.name);
  console_.print(fmt::format(
      "eval   step {}  epoch {:.1f}  loss {:.4f}{}{}{}\n", report.step, report.epoch,
      report.means.loss, primary ? "  " + primary->name + " " + shown(*primary) : "",
      others, report.is_best ? "  best" : ""));
}

void Reporter::step(std::int64_t step) {
  beat(step, run::Phase::training);
  if (telemetry_) telemetry_->step(step);
  if (show_) console_.tick(step);
}

void Reporter::beat(std::int64_t step, run::Phase phase) noexcept {
  // For the launcher the replicas are one rank, which waits for no other.
  const bool waits_for_replicas = is_replica_ && phase == run::Phase::exchanging;
  if (waits_for_replicas) phase = run::Phase::training;
  for (const auto& heartbeat : heartbeats_) heartbeat->beat(step, phase);
}

void Reporter::finished(const Result& result) {
  console_.finish();
  const bool is_over = !result.already_over.empty();
  if (is_over && first_ && !quiet_) console_.print(nothing_to_do(result));
  if (is_over || !first_) return beat(result.steps, run::Phase::finished);
  if (result.split) events_->write("profile", split_fields(*result.split));
  if (telemetry_) telemetry_->finish({.exit = result.exit, .steps = result.steps});
  events_->write(result.stopped_by != 0 ? "stopped" : "done",
                 {{"rank", std::int64_t{0}},
                  {"steps", result.steps},
                  {"reason", how_it_ended(result)},
                  {"over", result.stopped_by == 0 && !result.out_of_time}});
  beat(result.steps, run::Phase::finished);
}

}  // namespace lockstep::train
