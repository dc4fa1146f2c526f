#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/launcher/activity.h"
#include "lockstep/run/heartbeat.h"

namespace lockstep::launcher {

// The time that a rank may stay without a new beat. Zero: for ever.
struct HangLimits {
  // The limit in training for a rank that is idle: no CPU time, no I/O, no work of its
  // GPU. The larger of the floor and `step_factor` times its usual step.
  std::chrono::milliseconds step_floor{3'000};
  double step_factor = 5;
  // The limit in training for a rank that is active, or may be. The larger of this and
  // `step_factor` times the longest step of this run.
  std::chrono::milliseconds step_timeout{std::chrono::minutes(10)};
  std::chrono::milliseconds startup{std::chrono::minutes(10)};
  // The limit of the first step, and of later ones that are the first of a kind.
  std::chrono::milliseconds first_step{std::chrono::minutes(10)};
  std::chrono::milliseconds evaluation{std::chrono::minutes(5)};
  std::chrono::milliseconds saving{std::chrono::minutes(10)};
  std::chrono::milliseconds loading{std::chrono::minutes(5)};
};

// The observations of a rank at one look.
struct RankLook {
  bool running = true;
  std::optional<run::Beat> beat;  // of this process, nothing if there was none yet
  // The kernel's letter for the process: 'T' is stopped, 't' is held by a debugger.
  char state = 'S';
  // Nothing means not known: the rank counts as one that works.
  std::optional<Activity> activity = Activity{};
  std::optional<bool> gpu_busy = false;
};

struct Hang {
  int local_rank = 0;   // the one to blame
  std::string because;  // "no heartbeat for 3.1 s at step 12 (training); ..."
};

// A rank that takes longer than usual and is left alone.
struct SlowRank {
  int local_rank = 0;
  run::Beat beat;
  std::chrono::nanoseconds quiet{0};
  std::string text;  // "no heartbeat for 3.1 s at step 12 (training); ..."
};

struct HangVerdict {
  std::optional<Hang> hang;
  std::optional<SlowRank> slow;  // once for each time that it is slow
};

// Decides from the heartbeats of the ranks of this machine whether one of them hangs.
//
// Time counts only while it is observed: of the time between two looks, one second at
// most, so that a laptop's sleep or a Ctrl-Z is no hang. A rank that waits for the
// others (exchanging) is a victim as long as there is one that does not; so is one that
// does nothing in its step while another one works, saves, loads or evaluates: layers
// and buffers may wait for other ranks in the middle of a step.
//
// A false alarm is worse than a late one: within a step a rank is a hang only when it
// is stopped, or when it did nothing at all for the short limit, or after the long one.
class HangJudge {
 public:
  struct Group {
    int local_ranks = 1;         // of this machine
    bool several_nodes = false;  // ranks of other machines, not seen here, take part
  };
  HangJudge(const HangLimits& limits, const Group& group,
            const Clock& clock = Clock::system());

  HangVerdict look(const std::vector<RankLook>& ranks);

  // Call it when ranks are restarted: forgets all but how long their steps may take.
  void start_again();

  // Returns whether the rank has been quiet so long that its activity is worth a look.
  bool wants_evidence(int local_rank) const;

 private:
  struct Rank {
    std::optional<run::Beat> beat;
    std::chrono::nanoseconds quiet{0};   // since the last new beat
    std::chrono::nanoseconds idle{0};    // since it was last seen to do something
    std::chrono::nanoseconds window{0};  // since `before` was taken
    std::optional<Activity> before;
    std::chrono::nanoseconds longest{0};     // step of this run, all attempts
    bool was_stopped = false;                // at the last look
    std::chrono::nanoseconds stopped{0};     // in state T
    bool told_slow = false;                  // since the last new beat
    std::chrono::nanoseconds since_step{0};  // since the last new step
    bool plain = false;  // nothing but training since the last new step
    std::deque<std::chrono::nanoseconds> steps;  // how long the last ones took
  };

  void note(Rank& rank, const RankLook& look, std::chrono::nanoseconds passed) const;
  void note_activity(Rank& rank, const RankLook& look,
                     std::chrono::nanoseconds passed) const;
  std::chrono::nanoseconds step_limit(const Rank& rank) const;
  std::chrono::nanoseconds step_timeout(const Rank& rank) const;
  std::chrono::nanoseconds limit(const Rank& rank, bool all_wait) const;
  bool is_within_steps(const Rank& rank, bool all_wait) const;
  // What is seen of all ranks at once.
  struct Scene {
    const std::vector<RankLook>& looks;
    bool all_wait;
  };
  bool is_idle_for(std::size_t index, std::chrono::nanoseconds limit,
                   const Scene& scene) const;
  bool is_late(std::size_t index, const std::vector<RankLook>& looks,
               bool all_wait) const;
  // The time for which a rank is quiet before it is named as slow, and ended.
  struct Patience {
    std::chrono::nanoseconds named{0};
    std::chrono::nanoseconds ended{0};
    std::string_view until;  // behind the latter: "(watch.saving)"
  };
  std::optional<Patience> patience(const Rank& rank, bool all_wait) const;
  std::optional<SlowRank> slow(const std::vector<RankLook>& looks, bool all_wait);
  std::optional<std::size_t> latest(const std::vector<RankLook>& looks,
                                    bool all_wait) const;
  std::size_t blame(const std::vector<RankLook>& looks, std::size_t late) const;
  std::string describe(std::size_t index, const RankLook& look, bool all_wait) const;

  const HangLimits limits_;
  const bool several_nodes_;
  const Clock& clock_;
  std::optional<SteadyTime> looked_;
  std::vector<Rank> ranks_;
};

}  // namespace lockstep::launcher
