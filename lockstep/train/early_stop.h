#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/smoothed.h"
#include "lockstep/config/early_stop.h"
#include "lockstep/storage/manifest.h"
#include "lockstep/task/tally.h"

namespace lockstep::train {

// Keeps the best evaluation, and decides when none better is to be expected. It is fed
// with numbers that all ranks have, so all decide alike.
class EarlyStop {
 public:
  // `primary` is watched where the config names no metric.
  EarlyStop(const config::EarlyStopConfig& config, const task::Primary& primary);

  // Takes the watched metric out of an evaluation's; throws Fault::config, naming those
  // that there are, if it is not among them. Returns whether it is the best so far.
  bool observe(const task::Means& means);

  // Returns whether more than early_stop.patience evaluations in a row were no better.
  bool is_over() const noexcept;
  // Returns "loss has not improved by more than 0 on 0.31 for 3 evaluations"
  std::string because() const;

  std::optional<double> best() const noexcept { return best_; }

  // Returns the watched metric of an evaluation and its direction; none if it is NaN.
  std::optional<storage::WatchedMetric> watched(const task::Means& means) const;

  // These two are for checkpoints.
  std::int64_t waited() const noexcept { return waited_; }
  void restore(std::optional<double> best, std::int64_t waited);

 private:
  std::optional<task::MetricValue> find(const task::Means& means) const;
  bool is_higher_better(const task::MetricValue& value) const;
  bool improves(const task::MetricValue& value) const;

  config::EarlyStopConfig config_;
  std::string metric_;
  std::optional<double> best_;
  std::int64_t waited_ = 0;  // evaluations since then
};

// Detects that the smoothed training loss has left its best behind
// (early_stop.divergence). It is fed with numbers that all ranks have.
class Divergence {
 public:
  explicit Divergence(double ratio) : ratio_(ratio) {}

  // Takes the loss of a report. Returns true if the run has diverged.
  bool observe(double loss);
  std::string because() const;

  // These two are for checkpoints.
  std::map<std::string, double> state() const;
  void load(const std::map<std::string, double>& state);

 private:
  double ratio_;  // 0: never
  Smoothed smoothed_{kKeepOfLoss};
  double now_ = 0;
  double best_ = 0;
  bool has_best_ = false;
};

}  // namespace lockstep::train
