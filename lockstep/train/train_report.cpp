#include <algorithm>

#include "lockstep/train/report.h"

namespace lockstep::train {
namespace {

// Returns the seconds per step, in the mean over the ranks.
double mean_of(const TrainReport& report, double RankWindow::*seconds) {
  double sum = 0;
  for (const auto& rank : report.ranks) sum += rank.*seconds;
  const auto count = static_cast<double>(report.ranks.size()) *
                     static_cast<double>(std::max<std::int64_t>(report.steps, 1));
  return sum / std::max(count, 1.0);
}

}  // namespace

double TrainReport::samples_per_second() const {
  const auto targets =
      static_cast<double>(std::max<std::int64_t>(targets_per_sample, 1));
  return static_cast<double>(means.count) / targets / std::max(seconds, 1e-9);
}

double TrainReport::tokens_per_second() const {
  if (!targets_are_tokens) return 0;
  return samples_per_second() * static_cast<double>(targets_per_sample);
}

double TrainReport::step_seconds() const {
  return steps > 0 ? seconds / static_cast<double>(steps) : 0;
}

double TrainReport::forward_seconds() const {
  return mean_of(*this, &RankWindow::forward_seconds);
}

double TrainReport::backward_seconds() const {
  return mean_of(*this, &RankWindow::backward_seconds);
}

}  // namespace lockstep::train
