#include "lockstep/parallel/detail/stamps.h"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace lockstep::parallel::detail {
namespace {

// Returns an event that measures time, which LibTorch's default does not.
c10::Event timing_event(const torch::Device& device) {
  return {device.type(), c10::EventFlag::BACKEND_DEFAULT};
}

}  // namespace

Stamps::Stamps(const torch::Device& device, std::size_t buckets)
    : device_(device), begin_(Clock::system().now()) {
  host_.ready.resize(buckets);
  if (device.is_cpu()) return;
  of_device_.ready.resize(buckets);
  for (int i = 0; i < 2; ++i) {
    Marks marks{timing_event(device), timing_event(device), timing_event(device), {}};
    for (std::size_t b = 0; b < buckets; ++b) {
      marks.ready.push_back(timing_event(device));
    }
    marks_.push_back(std::move(marks));
  }
  record(marks_[turn_].begin);
}

void Stamps::record(c10::Event& event) const {
  const c10::impl::VirtualGuardImpl guard(device_.type());
  event.record(guard.getStream(device_));
}

void Stamps::begin_step() {
  begin_ = Clock::system().now();
  if (marks_.empty() || paused_) return;
  turn_ = 1 - turn_;
  marks_[turn_].complete = false;
  record(marks_[turn_].begin);
}

void Stamps::ready(std::size_t bucket) {
  host_.ready[bucket] = seconds_between(begin_, Clock::system().now());
  if (!marks_.empty() && !paused_) record(marks_[turn_].ready[bucket]);
}

void Stamps::begin_wait() {
  wait_begin_ = Clock::system().now();
  if (!marks_.empty() && !paused_) record(marks_[turn_].wait);
}

void Stamps::end_wait() {
  host_.waited = seconds_between(wait_begin_, Clock::system().now());
  host_.last_ready = *std::max_element(host_.ready.begin(), host_.ready.end());
  if (marks_.empty() || paused_) return;
  record(marks_[turn_].end);
  marks_[turn_].complete = true;
  read(marks_[1 - turn_]);
}

// Events that the device has not reached yet are left out: a step without numbers costs
// less than a host that waits.
void Stamps::read(Marks& marks) {
  if (!marks.complete || !marks.end.query()) return;
  constexpr double kSeconds = 1e-3;  // events measure milliseconds
  for (std::size_t b = 0; b < marks.ready.size(); ++b) {
    of_device_.ready[b] = kSeconds * marks.begin.elapsedTime(marks.ready[b]);
  }
  of_device_.last_ready =
      *std::max_element(of_device_.ready.begin(), of_device_.ready.end());
  of_device_.waited = kSeconds * marks.wait.elapsedTime(marks.end);
  marks.complete = false;
}

}  // namespace lockstep::parallel::detail
