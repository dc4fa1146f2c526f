#include "lockstep/monitor/series.h"

#include <algorithm>
#include <cmath>

namespace lockstep::monitor {
namespace {

double nearest_rank(const std::vector<double>& sorted, double share) {
  const auto rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(1.0, rank)) - 1];
}

}  // namespace

Series::Series(std::size_t capacity) : capacity_(std::max<std::size_t>(1, capacity)) {
  ring_.reserve(capacity_);
}

void Series::add(double value) {
  if (!std::isfinite(value)) return;
  if (ring_.size() < capacity_) {
    ring_.push_back(value);
  } else {
    ring_[next_] = value;
  }
  next_ = (next_ + 1) % capacity_;
  min_ = count_ == 0 ? value : std::min(min_, value);
  max_ = count_ == 0 ? value : std::max(max_, value);
  sum_ += value;
  last_ = value;
  ++count_;
}

Stats Series::stats() const {
  if (count_ == 0) return {};
  auto sorted = ring_;
  std::sort(sorted.begin(), sorted.end());
  return {.count = count_,
          .mean = sum_ / static_cast<double>(count_),
          .min = min_,
          .max = max_,
          .p50 = nearest_rank(sorted, 0.50),
          .p95 = nearest_rank(sorted, 0.95),
          .p99 = nearest_rank(sorted, 0.99)};
}

double Series::recent_mean(std::size_t count) const {
  const auto taken = std::min(count, ring_.size());
  if (taken == 0) return 0;
  double sum = 0;
  for (std::size_t i = 1; i <= taken; ++i) {
    sum += ring_[(next_ + capacity_ - i) % capacity_];
  }
  return sum / static_cast<double>(taken);
}

}  // namespace lockstep::monitor
