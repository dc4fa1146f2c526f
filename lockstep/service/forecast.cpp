#include "lockstep/service/forecast.h"

#include <algorithm>

namespace lockstep::service {
namespace {

constexpr double kShareRounding = 1e-9;

// What is free at a moment, and what becomes free when.
class Timeline {
 public:
  Timeline(const Capacity& capacity, std::vector<Load> running)
      : free_(capacity), running_(std::move(running)) {
    for (const auto& load : running_) take(load);
  }

  // Returns when this one starts, and lets it; nothing if that is not known.
  std::optional<double> start(const Load& wanted) {
    while (!fits(wanted)) {
      const auto next = first_to_end();
      if (next == running_.end()) return std::nullopt;
      now_ = std::max(now_, *next->seconds);
      free_.cores += next->cores;
      free_.gpus += next->gpus;
      running_.erase(next);
    }
    auto begun = wanted;
    if (begun.seconds) begun.seconds = now_ + *begun.seconds;
    take(begun);
    running_.push_back(begun);
    return now_;
  }

 private:
  bool fits(const Load& wanted) const {
    return wanted.cores <= free_.cores && wanted.gpus <= free_.gpus + kShareRounding;
  }

  void take(const Load& load) {
    free_.cores -= load.cores;
    free_.gpus -= load.gpus;
  }

  std::vector<Load>::iterator first_to_end() {
    auto first = running_.end();
    for (auto load = running_.begin(); load != running_.end(); ++load) {
      if (!load->seconds) continue;
      if (first == running_.end() || *load->seconds < *first->seconds) first = load;
    }
    return first;
  }

  Capacity free_;
  std::vector<Load> running_;  // `seconds` from the begin
  double now_ = 0;
};

}  // namespace

std::vector<std::optional<double>> forecast(const Capacity& capacity,
                                            std::vector<Load> running,
                                            const std::vector<Load>& waiting) {
  Timeline timeline(capacity, std::move(running));
  std::vector<std::optional<double>> starts;
  bool known = true;
  for (const auto& load : waiting) {
    // Those behind one that can not be told can not be told, either.
    starts.push_back(known ? timeline.start(load) : std::nullopt);
    known = starts.back().has_value();
  }
  return starts;
}

}  // namespace lockstep::service
