// Evaluates a sweep of learning rates.
#include <cmath>

#include "lockstep/base/smoothed.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/find_lr.h"

namespace lockstep::cli {

std::vector<LrPoint> lr_points(const std::vector<monitor::Metrics>& metrics) {
  std::vector<LrPoint> points;
  Smoothed smoothed(kKeepOfLoss);
  for (const auto& line : metrics) {
    if (line.split != monitor::Split::train) continue;
    if (!std::isfinite(line.loss)) break;
    points.push_back(
        {line.step, line.find("lr").value_or(0), line.loss, smoothed.add(line.loss)});
  }
  return points;
}

// The slope is half of the way from the point before to the one after; at the first,
// all of the way to the next.
std::optional<std::size_t> steepest(const std::vector<LrPoint>& points) {
  std::optional<std::size_t> best;
  if (points.empty()) return best;
  constexpr double kRounding = 1e-6;  // of a loss in float32: no fall
  double slope = -kRounding * std::abs(points.front().smoothed);
  const auto last = points.size() - 1;  // is left out
  for (std::size_t i = kSkippedPoints; i + 1 < last; ++i) {
    const bool first = i == kSkippedPoints;
    const auto before = points[first ? i : i - 1].smoothed;
    const auto own = (points[i + 1].smoothed - before) / (first ? 1 : 2);
    if (own >= slope) continue;
    slope = own;
    best = i;
  }
  return best;
}

double rounded_lr(double lr) {
  if (lr <= 0) return lr;
  const auto digit = std::pow(10.0, std::floor(std::log10(lr)) - 1);
  // The number goes through text, so that 3.2e-3 is not 0.0032000000000000002.
  return text::to_double(str(std::llround(lr / digit), "e",
                             static_cast<int>(std::floor(std::log10(lr))) - 1))
      .value_or(lr);
}

std::string lr_csv(const std::vector<LrPoint>& points) {
  std::string csv = "step,lr,loss,smoothed\n";
  for (const auto& point : points) {
    csv += str(point.step, ",", text::from_double(point.lr), ",",
               text::from_double(point.loss), ",", text::from_double(point.smoothed),
               "\n");
  }
  return csv;
}

}  // namespace lockstep::cli
