#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::monitor {

struct Stats {
  std::int64_t count = 0;
  double mean = 0;
  double min = 0;
  double max = 0;
  double p50 = 0;
  double p95 = 0;
  double p99 = 0;
};

// Numbers over time: the newest `capacity` of them, and mean and extremes of all. Room
// is taken once. A value that is not finite is not counted.
class Series {
 public:
  explicit Series(std::size_t capacity);

  void add(double value);

  std::int64_t count() const noexcept { return count_; }
  double last() const noexcept { return last_; }

  // Returns count, mean, min and max of all that were added; percentiles of those still
  // kept, each one of the values (the nearest rank).
  Stats stats() const;

  // Returns the mean of the newest `count` ones.
  double recent_mean(std::size_t count) const;

 private:
  std::vector<double> ring_;
  const std::size_t capacity_;
  std::size_t next_ = 0;
  std::int64_t count_ = 0;
  double sum_ = 0;
  double min_ = 0;
  double max_ = 0;
  double last_ = 0;
};

}  // namespace lockstep::monitor
