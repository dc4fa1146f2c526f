#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/smoothed.h"
#include "lockstep/config/early_stop.h"
#include "lockstep/storage/manifest.h"
#include "lockstep/train/tally.h"

namespace lockstep::train {

// Which evaluation was the best, and when there is no hope for a better one. Fed with
// numbers that all ranks have, so all come to the same.
class EarlyStop {
 public:
  // `primary`: what is watched where the config does not say.
  EarlyStop(const config::EarlyStopConfig& config, const task::Primary& primary);

  // Takes the watched metric out of an evaluation's; throws Fault::config, naming those
  // that there are, if it is not among them. Returns whether it is the best so far.
  bool observe(const Means& means);

  // More than early_stop.patience evaluations in a row were no better.
  bool is_over() const noexcept;
  // "loss has not improved by more than 0 on 0.31 for 3 evaluations"
  std::string because() const;

  std::optional<double> best() const noexcept { return best_; }

  // The watched metric of an evaluation, and what is better; none if it is no number.
  std::optional<storage::Metric> watched(const Means& means) const;

  // For checkpoints.
  std::int64_t waited() const noexcept { return waited_; }
  void restore(std::optional<double> best, std::int64_t waited);

 private:
  std::optional<task::MetricValue> find(const Means& means) const;
  bool is_higher_better(const task::MetricValue& value) const;
  bool improves(const task::MetricValue& value) const;

  config::EarlyStopConfig config_;
  std::string metric_;
  std::optional<double> best_;
  std::int64_t waited_ = 0;  // evaluations since then
};

// Whether the training loss, smoothed, has left its best behind
// (early_stop.divergence). Fed with numbers that all ranks have.
class Divergence {
 public:
  explicit Divergence(double ratio) : ratio_(ratio) {}

  // The loss of a report. True: it is over.
  bool observe(double loss);
  std::string because() const;

  // For checkpoints.
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
