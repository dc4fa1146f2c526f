#include "lockstep/train/early_stop.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {
namespace {

bool is_a_cost(const std::string& metric) {
  return metric == "loss" || metric == "perplexity";
}

}  // namespace

EarlyStop::EarlyStop(const config::EarlyStopConfig& config)
    : config_(config),
      higher_is_better_(config.mode == config::BetterMode::automatic
                            ? !is_a_cost(config.metric)
                            : config.mode == config::BetterMode::max) {}

bool EarlyStop::improves(double value) const {
  if (!std::isfinite(value)) return false;
  if (!best_) return true;
  return higher_is_better_ ? value > *best_ + config_.min_delta
                           : value < *best_ - config_.min_delta;
}

namespace {

auto find(const std::vector<MetricValue>& values, const std::string& name) {
  return std::find_if(values.begin(), values.end(),
                      [&](const MetricValue& one) { return one.name == name; });
}

}  // namespace

std::optional<storage::Metric> EarlyStop::watched(
    const std::vector<MetricValue>& values) const {
  const auto found = find(values, config_.metric);
  if (found == values.end() || !std::isfinite(found->value)) return std::nullopt;
  return storage::Metric{config_.metric, found->value, higher_is_better_};
}

bool EarlyStop::observe(const std::vector<MetricValue>& values) {
  const auto found = find(values, config_.metric);
  if (found == values.end()) {
    std::vector<std::string> names;
    for (const auto& one : values) names.push_back(one.name);
    throw Error(Fault::config, "early_stop.metric: '", config_.metric,
                "' is not evaluated; there are ", text::join(names, ", "),
                "; eval.metrics adds others");
  }
  if (!improves(found->value)) {
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
  return str(config_.metric, " has not improved by more than ", config_.min_delta, than,
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
  if (!std::isfinite(now_)) return "the loss is no number (early_stop.divergence)";
  return fmt::format(
      "the loss, smoothed, is {:.4g}: more than {} times its least, {:.4g}", now_,
      ratio_, best_);
}

}  // namespace lockstep::train
