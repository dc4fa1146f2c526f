#pragma once

#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/votes.h"
#include "lockstep/train/early_stop.h"
#include "lockstep/train/run_state.h"
#include "lockstep/train/stop_sources.h"

namespace lockstep::train {

// Decides when a run ends before its last step: a user asks for it, its time is over, a
// callback wants no more steps, or there is no hope for a better model. Ranks tell each
// other what they know in their ballots, so that all leave after the same step.
class StopPolicy {
 public:
  struct Limits {
    std::chrono::nanoseconds max_time{0};  // train.max_time; 0: none
    double divergence = 0;                 // early_stop.divergence
  };
  StopPolicy(const Limits& limits, StopSources sources,
             const Clock& clock = Clock::system())
      : max_time_(limits.max_time),
        sources_(std::move(sources)),
        clock_(clock),
        begin_(clock.now()),
        divergence_(limits.divergence) {}

  // Sets the seconds that a last checkpoint and the step before it are expected to
  // take: the end of a job, or of train.max_time, is seen so much earlier.
  void leave_room(double seconds);

  // Returns this rank's ballot: whether a signal, a file or the end of the job asks the
  // run to stop.
  comm::Ballot asked();
  // Returns whether train.max_time is over.
  bool is_out_of_time() const;

  // All ranks have the same ballots, so all come to the same decision.
  void on_ballots(const std::vector<comm::Ballot>& ballots);
  // Takes the training loss of a report: the run ends if it has diverged.
  void on_report(double loss);
  void end_early(const std::string& why);

  bool is_leaving() const noexcept { return leaving_; }
  int stopped_by() const noexcept { return stopped_by_; }  // the signal, or 0
  bool out_of_time() const noexcept { return out_of_time_; }
  const std::string& ended_early() const noexcept { return ended_early_; }

  void save(RunState& state) const;
  void restore(const RunState& state) { divergence_.load(state.divergence); }

 private:
  const std::chrono::nanoseconds max_time_;
  StopSources sources_;
  const Clock& clock_;
  const SteadyTime begin_;
  std::chrono::duration<double> room_{0};
  Divergence divergence_;
  bool leaving_ = false;  // agreed
  int stopped_by_ = 0;
  bool out_of_time_ = false;
  std::string ended_early_;
};

}  // namespace lockstep::train
