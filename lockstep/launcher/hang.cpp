#include "lockstep/launcher/hang.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"

namespace lockstep::launcher {
namespace {

using run::Phase;
using std::chrono::nanoseconds;

constexpr auto kForEver = nanoseconds::max();
constexpr nanoseconds kLongestGap = std::chrono::seconds(1);
constexpr std::size_t kKeptSteps = 32;

// Activity is compared over windows of this length. Work of a rank beside its steps,
// such as sampling the machine, stays far below these.
constexpr nanoseconds kWindow = std::chrono::seconds(1);
constexpr double kBusyCpuSeconds = 0.05;
constexpr std::int64_t kBusyIoBytes = 1 << 20;
constexpr std::int64_t kBusyStorageBytes = 64 << 10;
constexpr std::int64_t kBusyPageFaults = 10;

// This holds however short the floor is: activity shows over windows only.
constexpr nanoseconds kEvidence = 2 * kWindow;

// The activity of a rank is read after this time.
constexpr nanoseconds kNoticeable = std::chrono::milliseconds(500);

// The share of its limit after which something that is done for the first time is slow.
constexpr int kSlowFirstTime = 10;

// The number of floors of a slow batch of data or of an evaluation, or a slow save:
// they take longer than steps, and it is not known how much.
constexpr int kSlowBesideSteps = 10;

nanoseconds or_for_ever(std::chrono::milliseconds limit) {
  return limit.count() > 0 ? nanoseconds(limit) : kForEver;
}

bool is_step(Phase phase) {
  return phase == Phase::training || phase == Phase::loading ||
         phase == Phase::exchanging;
}

bool is_new(const std::optional<run::Beat>& before, const run::Beat& now) {
  return !before || before->time != now.time || before->step != now.step ||
         before->phase != now.phase || before->pid != now.pid;
}

nanoseconds median(std::deque<nanoseconds> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string seconds_text(nanoseconds time) {
  const double seconds = std::chrono::duration<double>(time).count();
  std::array<char, 32> text{};
  const int size =
      seconds < 0.1 ? std::snprintf(text.data(), text.size(), "%.1f ms", 1e3 * seconds)
                    : std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  return {text.data(), static_cast<std::size_t>(size)};
}

bool does_something(const Activity& before, const Activity& now) {
  return now.cpu_seconds - before.cpu_seconds >= kBusyCpuSeconds ||
         now.io_bytes - before.io_bytes >= kBusyIoBytes ||
         now.storage_bytes - before.storage_bytes >= kBusyStorageBytes ||
         now.major_page_faults - before.major_page_faults >= kBusyPageFaults;
}

bool waits(const std::optional<run::Beat>& beat) {
  return beat && beat->phase == Phase::exchanging;
}

}  // namespace

HangJudge::HangJudge(const HangLimits& limits, const Group& group, const Clock& clock)
    : limits_(limits),
      several_nodes_(group.several_nodes),
      clock_(clock),
      ranks_(static_cast<std::size_t>(group.local_ranks)) {}

void HangJudge::note(Rank& rank, const RankLook& look, nanoseconds passed) const {
  if (look.state == 't') return;  // a user looks at it with a debugger
  rank.quiet += passed;
  rank.since_step += passed;
  note_activity(rank, look, passed);
  if (!look.beat || !is_new(rank.beat, *look.beat)) return;
  const auto& beat = *look.beat;
  if (!is_step(beat.phase)) rank.plain = false;
  if (!rank.beat || beat.step != rank.beat->step) {
    // Several steps may lie between two looks.
    const auto steps = rank.beat ? beat.step - rank.beat->step : 0;
    if (rank.plain && steps > 0) {
      rank.steps.push_back(rank.since_step / steps);
      rank.longest = std::max(rank.longest, rank.steps.back());
      if (rank.steps.size() > kKeptSteps) rank.steps.pop_front();
    }
    rank.since_step = nanoseconds(0);
    rank.plain = is_step(beat.phase);
  }
  rank.beat = beat;
  rank.quiet = rank.idle = nanoseconds(0);
  rank.told_slow = false;
}

// A process in state D waits for a disk or a driver: not idle, whatever else it is.
void HangJudge::note_activity(Rank& rank, const RankLook& look,
                              nanoseconds passed) const {
  rank.idle += passed;
  rank.window += passed;
  const bool is_stopped = look.state == 'T';
  rank.stopped =
      is_stopped && rank.was_stopped ? rank.stopped + passed : nanoseconds(0);
  rank.was_stopped = is_stopped;
  const bool unknown = !look.activity || !look.gpu_busy;
  const bool works =
      look.state != 'T' &&
      (unknown || *look.gpu_busy || look.state == 'D' || look.activity->in_kernel ||
       (rank.before && does_something(*rank.before, *look.activity)));
  if (works) rank.idle = nanoseconds(0);
  const bool is_within_window = rank.before && rank.window < kWindow;
  if (!works && is_within_window) return;
  rank.before = look.activity;
  rank.window = nanoseconds(0);
}

void HangJudge::start_again() {
  looked_.reset();
  for (auto& rank : ranks_) {
    const auto longest = rank.longest;
    rank = {};
    rank.longest = longest;
  }
}

bool HangJudge::wants_evidence(int local_rank) const {
  return ranks_[static_cast<std::size_t>(local_rank)].quiet >= kNoticeable;
}

nanoseconds HangJudge::step_limit(const Rank& rank) const {
  if (limits_.step_floor.count() <= 0) return kForEver;
  if (rank.steps.empty()) return or_for_ever(limits_.first_step);
  const std::chrono::duration<double, std::nano> usual = median(rank.steps);
  return std::max<nanoseconds>(
      limits_.step_floor,
      std::chrono::duration_cast<nanoseconds>(limits_.step_factor * usual));
}

nanoseconds HangJudge::step_timeout(const Rank& rank) const {
  if (limits_.step_floor.count() <= 0 || limits_.step_timeout.count() <= 0) {
    return kForEver;
  }
  const std::chrono::duration<double, std::nano> longest = rank.longest;
  return std::max(
      {nanoseconds(limits_.step_timeout), step_limit(rank),
       std::chrono::duration_cast<nanoseconds>(limits_.step_factor * longest)});
}

nanoseconds HangJudge::limit(const Rank& rank, bool all_wait) const {
  if (!rank.beat) return or_for_ever(limits_.startup);
  switch (rank.beat->phase) {
    case Phase::starting:
      return or_for_ever(limits_.startup);
    case Phase::training:
      return step_limit(rank);
    case Phase::warming_up:
      return or_for_ever(limits_.first_step);
    case Phase::evaluating:
      return or_for_ever(limits_.evaluation);
    case Phase::loading:
      return or_for_ever(limits_.loading);
    case Phase::exchanging:
      if (!all_wait) return kForEver;
      // The rank they wait for may be on another machine, and busy with a save.
      return several_nodes_ ? or_for_ever(limits_.saving) : step_limit(rank);
    case Phase::saving:
    case Phase::stopping:
    case Phase::finished:
      break;
  }
  return or_for_ever(limits_.saving);
}

// Returns whether its limit is the short one of a usual step.
bool HangJudge::is_within_steps(const Rank& rank, bool all_wait) const {
  if (!rank.beat || rank.steps.empty()) return false;
  return rank.beat->phase == Phase::training ||
         (rank.beat->phase == Phase::exchanging && all_wait && !several_nodes_);
}

// Returns whether the rank and all that it may wait for were idle: those that wait with
// it, if all do, else those that do not.
bool HangJudge::is_idle_for(std::size_t index, nanoseconds limit,
                            const Scene& scene) const {
  const auto& [looks, all_wait] = scene;
  if (ranks_[index].idle < limit) return false;
  // Ranks of other machines are not seen here.
  if (several_nodes_ && !all_wait) return false;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    const auto& other = ranks_[i];
    if (i == index || !looks[i].running || looks[i].state == 'T') continue;
    if (!all_wait && waits(other.beat)) continue;
    const bool within = other.beat && (other.beat->phase == Phase::training ||
                                       other.beat->phase == Phase::exchanging);
    if (!within || other.idle < limit) return false;
  }
  return true;
}

bool HangJudge::is_late(std::size_t index, const std::vector<RankLook>& looks,
                        bool all_wait) const {
  const auto& rank = ranks_[index];
  const auto& look = looks[index];
  const auto allowed = limit(rank, all_wait);
  if (look.state == 'T' && limits_.step_floor.count() > 0) {
    // A stopped process is at no work that could take its time.
    const auto step = rank.steps.empty() ? limits_.step_floor : step_limit(rank);
    return rank.stopped >= nanoseconds(step) || rank.quiet >= allowed;
  }
  if (rank.quiet < allowed) return false;
  if (!is_within_steps(rank, all_wait)) return true;
  return is_idle_for(index, std::max(allowed, kEvidence), {looks, all_wait}) ||
         rank.quiet >= step_timeout(rank);
}

HangVerdict HangJudge::look(const std::vector<RankLook>& looks) {
  LOCKSTEP_CHECK(looks.size() == ranks_.size(), looks.size(), " of ", ranks_.size());
  const auto now = clock_.now();
  const nanoseconds passed =
      looked_ ? std::min<nanoseconds>(now - *looked_, kLongestGap) : nanoseconds(0);
  looked_ = now;
  bool all_wait = true;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    if (!looks[i].running) continue;
    note(ranks_[i], looks[i], passed);
    all_wait = all_wait && looks[i].state != 't' && waits(ranks_[i].beat);
  }
  const auto late = latest(looks, all_wait);
  if (!late) return {.hang = {}, .slow = slow(looks, all_wait)};
  const auto guilty = blame(looks, *late);
  return {.hang = Hang{.local_rank = static_cast<int>(guilty),
                       .because = describe(guilty, looks[guilty], all_wait)},
          .slow = {}};
}

// Returns nothing for one that waits for others, that starts, or that is about to end.
std::optional<HangJudge::Patience> HangJudge::patience(const Rank& rank,
                                                       bool all_wait) const {
  const auto allowed = limit(rank, all_wait);
  if (is_within_steps(rank, all_wait)) {
    return Patience{allowed, step_timeout(rank),
                    " while it uses CPU, disk or GPU (watch.step_timeout)"};
  }
  // A user may have set a limit that is shorter than the floors.
  const auto beside_steps =
      std::min(kSlowBesideSteps * nanoseconds(limits_.step_floor), allowed / 2);
  switch (rank.beat->phase) {
    case Phase::training:
    case Phase::warming_up:
      return Patience{allowed / kSlowFirstTime, allowed, " (watch.first_step)"};
    case Phase::evaluating:
      return Patience{beside_steps, allowed, " (watch.evaluation)"};
    case Phase::loading:
      return Patience{beside_steps, allowed, " (watch.loading)"};
    case Phase::saving:
      return Patience{beside_steps, allowed, " (watch.saving)"};
    default:
      return std::nullopt;
  }
}

// Returns the rank that holds up the others.
std::optional<SlowRank> HangJudge::slow(const std::vector<RankLook>& looks,
                                        bool all_wait) {
  for (std::size_t i = 0; i < looks.size(); ++i) {
    auto& rank = ranks_[i];
    if (!looks[i].running || looks[i].state == 't' || !rank.beat || rank.told_slow) {
      continue;
    }
    const auto patience = this->patience(rank, all_wait);
    if (!patience || rank.quiet < patience->named) continue;
    rank.told_slow = true;
    auto text = describe(i, looks[i], all_wait) + "; it is left alone";
    if (patience->ended != kForEver) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(patience->ended);
      text += str(" for ", units::exact_duration(left), patience->until);
    }
    return SlowRank{.local_rank = static_cast<int>(i),
                    .beat = *rank.beat,
                    .quiet = rank.quiet,
                    .text = std::move(text)};
  }
  return std::nullopt;
}

std::optional<std::size_t> HangJudge::latest(const std::vector<RankLook>& looks,
                                             bool all_wait) const {
  std::optional<std::size_t> late;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    const auto& rank = ranks_[i];
    if (!looks[i].running || looks[i].state == 't') continue;
    if (!is_late(i, looks, all_wait)) continue;
    if (!late || rank.quiet > ranks_[*late].quiet) late = i;
  }
  return late;
}

// Returns which of the ranks that stand still with the late one holds up the rest.
std::size_t HangJudge::blame(const std::vector<RankLook>& looks,
                             std::size_t late) const {
  const auto innocence = [&](std::size_t i) {
    const auto& rank = ranks_[i];
    return std::tuple(looks[i].state != 'T', waits(rank.beat),
                      rank.beat ? rank.beat->step : -1, -rank.quiet);
  };
  auto guilty = late;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    const bool still = looks[i].running && ranks_[i].quiet >= ranks_[late].quiet / 2;
    if (still && innocence(i) < innocence(guilty)) guilty = i;
  }
  return guilty;
}

std::string HangJudge::describe(std::size_t index, const RankLook& look,
                                bool all_wait) const {
  const auto& rank = ranks_[index];
  const std::string where =
      rank.beat ? str("at step ", rank.beat->step, " (", name_of(rank.beat->phase), ")")
                : "before its first heartbeat";
  std::string text = look.state == 'T' ? "is stopped (SIGSTOP): " : "";
  text += str("no heartbeat for ", seconds_text(rank.quiet), " ", where);
  if (all_wait && ranks_.size() > 1) text += ", as all ranks wait for each other";
  if (!rank.steps.empty()) {
    text += str("; its usual step takes ", seconds_text(median(rank.steps)));
  }
  return text;
}

}  // namespace lockstep::launcher
