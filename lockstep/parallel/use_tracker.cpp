#include "lockstep/parallel/detail/use_tracker.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/parallel/detail/unused.h"

namespace lockstep::parallel::detail {

UseTracker::UseTracker(const std::vector<Parameter>& parameters,
                       comm::Communicator& cpu, const Options& options)
    : parameters_(parameters), cpu_(cpu), options_(options) {
  used_.assign(parameters.size(), 0);
}

void UseTracker::reset() {
  std::fill(used_.begin(), used_.end(), 0);
}

bool UseTracker::none() const {
  return std::none_of(used_.begin(), used_.end(), [](char used) { return used != 0; });
}

void UseTracker::check(Exchange& exchange, bool excused) {
  if (captured_) {
    captured_unused_.clear();
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (!used_[i]) captured_unused_.push_back(i);
    }
    return;
  }
  if (!asks()) return;  // as in the first step
  globally_unused_.clear();
  const auto& absences = exchange.absences(used_, excused);
  // On several GPUs the counts come one step later, and are of the step before.
  const bool late = absences.empty() || !told_.empty();
  auto& told = now_told_;
  told.assign(used_.begin(), used_.end());
  if (excused) std::fill(told.begin(), told.end(), 1);
  if (late) std::swap(told, told_);
  if (absences.empty()) return;
  checked_ = true;
  exchange.tell_absences(asks());
  const bool complete =
      std::all_of(absences.begin(), absences.end(), [](int n) { return n == 0; });
  if (complete) return;
  if (!options_.find_unused) {
    throw Error(Fault::config, describe_unused(parameters_, told, cpu_));
  }
  for (std::size_t i = 0; i < absences.size(); ++i) {
    if (absences[i] >= exchange.voters()) globally_unused_.push_back(i);
  }
}

}  // namespace lockstep::parallel::detail
