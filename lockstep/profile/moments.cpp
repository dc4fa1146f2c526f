#include "lockstep/profile/detail/moments.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::profile::detail {

double seconds_of(SteadyTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

c10::Event Moments::recorded() const {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  c10::Event event(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // one with a time
  event.record(guard.getStream(device_));
  return event;
}

std::size_t Moments::take() {
  if (device_.is_cpu()) return take(Clock::system().now());
  events_.push_back(recorded());
  return events_.size() - 1;
}

std::size_t Moments::take(SteadyTime now) {
  seconds_.push_back(seconds_of(now));
  return seconds_.size() - 1;
}

// The host knows when the last event was over; the others are known from each to the
// next, because a float can not count the microseconds of a long run.
void Moments::settle() {
  if (device_.is_cpu() || events_.empty()) return;
  constexpr double kSeconds = 1e-3;  // events measure milliseconds
  auto next = recorded();
  next.synchronize();
  auto time = seconds_of(Clock::system().now());
  seconds_.assign(events_.size(), 0);
  const auto* later = &next;
  for (auto i = events_.size(); i-- > 0; later = &events_[i]) {
    time -= kSeconds * events_[i].elapsedTime(*later);
    seconds_[i] = time;
  }
}

}  // namespace lockstep::profile::detail
