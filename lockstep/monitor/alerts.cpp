#include "lockstep/monitor/alerts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/base/units.h"

namespace lockstep::monitor {
namespace {

double percent(double share) {
  return 100 * share;
}

// Returns the reasons that cost speed and that a user can do something about.
std::vector<std::string> slowing(const std::vector<std::string>& reasons) {
  std::vector<std::string> found;
  for (const auto& reason : reasons) {
    if (reason == "power_cap" || reason == "power_brake" || reason == "temperature" ||
        reason == "hardware_temperature" || reason == "hardware_slowdown") {
      found.push_back(reason);
    }
  }
  return found;
}

std::optional<double> reading(const SystemSample& sample, std::string_view name) {
  for (const auto& one : sample.readings) {
    if (one.name == name) return one.value;
  }
  return std::nullopt;
}

}  // namespace

Alerts::Alerts(const config::MonitorConfig& config, std::vector<hardware::Gpu> gpus)
    : config_(config), gpus_(std::move(gpus)) {}

void Alerts::judge(const Finding& finding, SteadyTime now, std::vector<Alert>& alerts) {
  auto& state = states_[{finding.rule, finding.gpu.value_or(-1)}];
  const bool turns = state.raised ? finding.over : finding.bad;
  if (!turns) {
    state.changing_since.reset();
    return;
  }
  if (!state.changing_since) state.changing_since = now;
  if (!finding.at_once && now - *state.changing_since < config_.alert_after) return;
  state.raised = !state.raised;
  state.changing_since.reset();
  alerts.push_back({.rule = finding.rule,
                    .gpu = finding.gpu,
                    .raised = state.raised,
                    .text = state.raised ? finding.text : finding.rule + " is over"});
}

void Alerts::judge_gpu(const GpuSample& sample, SteadyTime now,
                       std::vector<Alert>& alerts) {
  const auto& [gpu, status, trains] = sample;
  if (const auto degrees = status.temperature_celsius) {
    // Three degrees before it slows itself down there is still time to do something.
    const double limit =
        std::min(config_.alert_temperature, gpu.slowdown_celsius.value_or(1000) - 3.0);
    judge(
        {.rule = "temperature",
         .gpu = gpu.index,
         .bad = *degrees >= limit,
         .over = *degrees <= limit - 5,
         .text = fmt::format("GPU {} has {} C, the limit is {} C; look at its cooling",
                             gpu.index, *degrees, limit)},
        now, alerts);
  }
  if (status.throttle_reasons) {
    const auto reasons = slowing(*status.throttle_reasons);
    judge({.rule = "throttled",
           .gpu = gpu.index,
           .bad = !reasons.empty(),
           .over = reasons.empty(),
           .text = fmt::format("GPU {} is slowed down: {}", gpu.index,
                               text::join(reasons, ", "))},
          now, alerts);
  }
  judge_load(sample, now, alerts);
  if (const auto errors = status.ecc_uncorrected) {
    const auto first = ecc_at_start_.try_emplace(gpu.index, *errors).first->second;
    judge(
        {.rule = "ecc",
         .gpu = gpu.index,
         .bad = *errors > first,
         .text = fmt::format("GPU {} had {} memory errors that could not be corrected; "
                             "results since then may be wrong",
                             gpu.index, *errors - first),
         .at_once = true},
        now, alerts);
  }
}

void Alerts::judge_load(const GpuSample& sample, SteadyTime now,
                        std::vector<Alert>& alerts) {
  const auto& [gpu, status, trains] = sample;
  if (status.memory_used_bytes && gpu.memory_total_bytes > 0) {
    const auto share = static_cast<double>(*status.memory_used_bytes) /
                       static_cast<double>(gpu.memory_total_bytes);
    judge(
        {.rule = "memory",
         .gpu = gpu.index,
         .bad = share > config_.alert_memory,
         .over = share < config_.alert_memory - 0.02,
         .text = fmt::format("GPU {} uses {} of {}; a smaller batch.micro leaves room",
                             gpu.index, units::format_bytes(*status.memory_used_bytes),
                             units::format_bytes(gpu.memory_total_bytes))},
        now, alerts);
  }
  if (status.utilization_percent && trains) {
    const double share = *status.utilization_percent / 100.0;
    const bool idles = share < config_.alert_utilization;
    const bool works = share > config_.alert_utilization + 0.1;
    judge({.rule = "utilization",
           .gpu = gpu.index,
           .bad = idles,
           .over = works,
           .text = fmt::format("GPU {} utilization is {} %, below {:.0f} %; "
                               "look at data_wait_seconds and batch.micro",
                               gpu.index, *status.utilization_percent,
                               percent(config_.alert_utilization))},
          now, alerts);
  }
}

void Alerts::judge_host(const SystemSample& sample, SteadyTime now,
                        std::vector<Alert>& alerts) {
  const auto used = reading(sample, "host_memory_used_bytes");
  const auto total = reading(sample, "host_memory_total_bytes");
  if (!used || !total || *total <= 0) return;
  const double share = *used / *total;
  judge({.rule = "memory",
         .bad = share > config_.alert_memory,
         .over = share < config_.alert_memory - 0.02,
         .text = fmt::format("the host uses {} of {}; fewer data.workers or a smaller "
                             "data.prefetch leave room",
                             units::format_bytes(static_cast<std::int64_t>(*used)),
                             units::format_bytes(static_cast<std::int64_t>(*total)))},
        now, alerts);
}

std::vector<Alert> Alerts::sample(const SystemSample& sample, SteadyTime now,
                                  std::optional<SteadyTime> last_step) {
  std::vector<Alert> alerts;
  if (!config_.alerts) return alerts;
  const bool trains = last_step.has_value();
  for (std::size_t i = 0; i < std::min(gpus_.size(), sample.gpus.size()); ++i) {
    judge_gpu({gpus_[i], sample.gpus[i], trains}, now, alerts);
  }
  judge_host(sample, now, alerts);
  if (trains && config_.alert_no_step.count() > 0) {
    const auto still = now - *last_step;
    judge({.rule = "no_step",
           .bad = still >= config_.alert_no_step,
           .over = still < config_.alert_no_step,
           .text = fmt::format(
               "no step for {}; `lockstep status` shows what each rank "
               "is doing",
               units::exact_duration(
                   std::chrono::duration_cast<std::chrono::seconds>(still))),
           .at_once = true},
          now, alerts);
  }
  return alerts;
}

std::vector<Alert> Alerts::metrics(const Metrics& metrics, SteadyTime now) {
  std::vector<Alert> alerts;
  if (!config_.alerts) return alerts;
  judge({.rule = "loss",
         .bad = !std::isfinite(metrics.loss),
         .over = std::isfinite(metrics.loss),
         .text =
             fmt::format("the loss of step {} is {}; a lower optim.lr or clipping may "
                         "help",
                         metrics.step, metrics.loss),
         .at_once = true},
        now, alerts);
  if (metrics.split != Split::train) return alerts;
  const auto before = std::exchange(last_metrics_, now);
  const auto waited = metrics.find("data_wait_seconds");
  const double passed = before ? seconds_between(*before, now) : 0;
  if (!waited || passed <= 0) return alerts;
  const double share = std::min(1.0, *waited / passed);
  judge(
      {.rule = "data_wait",
       .bad = share > config_.alert_data_wait,
       .over = share < config_.alert_data_wait / 2,
       .text = fmt::format("{:.0f} % of the step time is spent waiting for data; raise "
                           "data.workers",
                           percent(share))},
      now, alerts);
  return alerts;
}

}  // namespace lockstep::monitor
