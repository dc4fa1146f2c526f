#include "lockstep/train/window.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

namespace lockstep::train {
namespace {

// Writes numbers as doubles: an integer up to 2^53 stays exact.
class WindowWriter {
 public:
  template <typename T>
  void number(T& value, const WindowMetric&) {
    numbers.push_back(static_cast<double>(value));
  }
  std::vector<double> numbers;
};

class WindowReader {
 public:
  explicit WindowReader(const double* numbers) : numbers_(numbers) {}
  template <typename T>
  void number(T& value, const WindowMetric&) {
    value = static_cast<T>(*numbers_++);
  }

 private:
  const double* numbers_;
};

std::vector<double> numbers_of(RankWindow window) {
  WindowWriter writer;
  describe(window, writer);
  return writer.numbers;
}

// Collects one window of all ranks after the other, then reduces each number.
class Metrics {
 public:
  explicit Metrics(std::int64_t steps) : steps_(steps) {}

  void add(RankWindow window) {
    at_ = 0;
    describe(window, *this);
    ranks_ += 1;
  }

  template <typename T>
  void number(const T& value, const WindowMetric& metric) {
    if (ranks_ == 0) rows_.push_back({metric, std::is_integral_v<T>, {}});
    rows_[at_++].values.push_back(static_cast<double>(value));
  }

  std::vector<run::NamedValue> fields() const {
    std::vector<run::NamedValue> fields;
    for (const auto& row : rows_) {
      const double value = reduced(row);
      if (!is_written(row.metric, value)) continue;
      const std::string name(row.metric.name);
      if (row.is_whole) {
        fields.push_back({name, static_cast<std::int64_t>(value)});
      } else {
        fields.push_back({name, value});
      }
    }
    return fields;
  }

 private:
  struct Row {
    WindowMetric metric;
    bool is_whole = false;
    std::vector<double> values;  // by rank
  };

  double reduced(const Row& row) const {
    using Over = WindowMetric::OverRanks;
    const auto& values = row.values;
    double result = values.front();
    if (row.metric.over == Over::largest) {
      result = *std::max_element(values.begin(), values.end());
    } else if (row.metric.over != Over::first) {
      result = std::accumulate(values.begin(), values.end(), 0.0);
    }
    if (row.metric.over == Over::mean) result /= static_cast<double>(values.size());
    const auto steps = static_cast<double>(std::max<std::int64_t>(steps_, 1));
    return row.metric.per_step ? result / steps : result;
  }

  bool is_written(const WindowMetric& metric, double value) const {
    using When = WindowMetric::When;
    if (metric.name.empty()) return false;
    if (metric.when == When::known) return value != 0;
    return metric.when == When::always || ranks_ > 1;
  }

  const std::int64_t steps_;
  std::size_t at_ = 0;
  std::size_t ranks_ = 0;
  std::vector<Row> rows_;
};

// Returns the time from the last sums of all ranks to this rank's last gradient.
double busy(const RankWindow& window) {
  return window.data_wait_seconds + window.compute_seconds;
}

}  // namespace

std::vector<RankWindow> gather(const RankWindow& own, comm::Communicator& cpu) {
  const auto ranks = static_cast<std::size_t>(cpu.size());
  const auto numbers = numbers_of(own);
  const auto count = static_cast<std::int64_t>(numbers.size());
  const auto mine = torch::empty({count}, torch::kFloat64);
  std::copy(numbers.begin(), numbers.end(), mine.mutable_data_ptr<double>());
  auto all = mine;
  if (ranks > 1) {
    all = torch::empty({cpu.size() * count}, torch::kFloat64);
    cpu.all_gather(all, mine).wait();
  }
  std::vector<RankWindow> windows(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    WindowReader reader(all.const_data_ptr<double>() + r * numbers.size());
    describe(windows[r], reader);
  }
  return windows;
}

std::vector<run::NamedValue> fields_of(const std::vector<RankWindow>& ranks,
                                       std::int64_t steps) {
  Metrics metrics(steps);
  for (const auto& rank : ranks) metrics.add(rank);
  return metrics.fields();
}

std::optional<Straggler> find_straggler(const std::vector<RankWindow>& ranks) {
  if (ranks.size() < 2) return std::nullopt;
  std::size_t last = 0;
  double sum = 0;
  double data_sum = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (busy(ranks[r]) > busy(ranks[last])) last = r;
    sum += busy(ranks[r]);
    data_sum += ranks[r].data_wait_seconds;
  }
  const auto others = static_cast<double>(ranks.size() - 1);
  const auto late = busy(ranks[last]) - (sum - busy(ranks[last])) / others;
  const auto data = ranks[last].data_wait_seconds;
  const auto data_late = data - (data_sum - data) / others;
  return Straggler{static_cast<int>(last), late,
                   data_late >= late / 2 ? "data wait" : "compute"};
}

}  // namespace lockstep::train
