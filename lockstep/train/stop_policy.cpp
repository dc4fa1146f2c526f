#include "lockstep/train/stop_policy.h"

#include "lockstep/base/log.h"

namespace lockstep::train {
namespace {

// The factor on the time that a last checkpoint and the step before it take.
constexpr double kSpareTime = 2;

}  // namespace

void StopPolicy::leave_room(double seconds) {
  room_ = std::chrono::duration<double>(kSpareTime * seconds);
}

comm::Ballot StopPolicy::asked() {
  comm::Ballot own;
  sources_.leave_room(room_);
  if (const int signal = sources_.asked()) {
    own.flags |= comm::kStop;
    own.value = signal;
  }
  return own;
}

bool StopPolicy::is_out_of_time() const {
  return max_time_.count() > 0 && clock_.now() - begin_ + room_ >= max_time_;
}

void StopPolicy::on_ballots(const std::vector<comm::Ballot>& ballots) {
  const auto flags = comm::Votes::any(ballots);
  if ((flags & comm::kEnough) != 0) end_early("stopped by a callback");
  if ((flags & comm::kOutOfTime) != 0) leaving_ = out_of_time_ = true;
  for (const auto& one : ballots) {
    if ((one.flags & comm::kStop) == 0) continue;
    leaving_ = true;
    if (stopped_by_ == 0) stopped_by_ = static_cast<int>(one.value);
  }
}

void StopPolicy::on_report(double loss) {
  if (divergence_.observe(loss)) end_early(divergence_.because());
}

void StopPolicy::end_early(const std::string& why) {
  leaving_ = true;
  ended_early_ = why;
  log::info("train", why);
}

void StopPolicy::save(RunState& state) const {
  state.divergence = divergence_.state();
  state.ended_early = ended_early_;
}

}  // namespace lockstep::train
