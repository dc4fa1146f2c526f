#include "lockstep/train/early_stop.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
EarlyStop::EarlyStop(const config::EarlyStopConfig& config,
                     const task::Primary& primary)
    : config_(config),
      metric_(config.metric == "auto" ? primary.name : config.metric) {}

bool EarlyStop::is_higher_better(const task::MetricValue& value) const {
  return config_.mode == config::BetterMode::automatic
             ? value.better == task::Better::more
             : config_.mode == config::BetterMode::max;
}

bool EarlyStop::improves(const task::MetricValue& metric) const {
  if (!std::isfinite(metric.value)) return false;
  if (!best_) return true;
  return is_higher_better(metric) ? metric.value > *best_ + config_.min_delta
                                  : metric.value < *best_ - config_.min_delta;
}

std::optional<task::MetricValue> EarlyStop::find(const task::Means& means) const {
  if (metric_ == "loss")
    return task::MetricValue{"loss", means.loss, task::Better::less};
  for (const auto& one : means.values) {
    if (one.name == metric_) return one;
  }
  return std::nullopt;
}

std::optional<storage::WatchedMetric> EarlyStop::watched(
    const task::Means& means) const {
  const auto found = find(means);
  if (!found || !std::isfinite(found->value)) return std::nullopt;
  return storage::WatchedMetric{metric_, found->value, is_higher_better(*found)};
}

bool EarlyStop::observe(const task::Means& means) {
  const auto found = find(means);
  if (!found) {
    std::vector<std::string> names{"loss"};
    for (const auto& one : means.values) names.push_back(one.name);
    throw Error(Fault::config, "early_stop.metric: '", metric_,
                "' is not evaluated; there are ", text::join(names, ", "),
                "; eval.metrics adds others");
  }
  if (!improves(*found)) {
    waited_ += 1;
    return false;
  }
  best_ = found->value;
  waited_ = 0;
  return true;
}

bool EarlyStop::is_over() const noexcept {
  return config_.patience > 0 && waited_ >= config_.patience;
}

std::string EarlyStop::because() const {
  const auto than = best_ ? str(" on ", *best_) : "";
  return str(metric_, " has not improved by more than ", config_.min_delta, than,
             " for ", waited_, " evaluations");
}

void EarlyStop::restore(std::optional<double> best, std::int64_t waited) {
  best_ = best;
  waited_ = waited;
}

bool Divergence::observe(double loss) {
  if (ratio_ == 0) return false;
  now_ = std::isfinite(loss) ? smoothed_.add(loss) : loss;
  if (!std::isfinite(now_)) return true;
  if (!has_best_ || now_ < best_) best_ = now_;
  has_best_ = true;
  return now_ > ratio_ * best_;
}

std::map<std::string, double> Divergence::state() const {
  if (!has_best_) return {};
  const auto smoothed = smoothed_.state();
  return {{"sum", smoothed.sum},
          {"count", static_cast<double>(smoothed.count)},
          {"best", best_}};
}

void Divergence::load(const std::map<std::string, double>& state) {
  has_best_ = !state.empty();
  if (!has_best_) return;
  smoothed_.load({state.at("sum"), static_cast<std::int64_t>(state.at("count"))});
  best_ = state.at("best");
}

std::string Divergence::because() const {
  if (std::isnan(now_)) return "loss is NaN (early_stop.divergence)";
  if (std::isinf(now_)) return "loss is infinite (early_stop.divergence)";
  return fmt::format(
      "smoothed loss {:.4g} exceeds {} x its minimum {:.4g} (early_stop.divergence)",
      now_, ratio_, best_);
}

}  // namespace lockstep::train
