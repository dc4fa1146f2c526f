#include "lockstep/launcher/hang.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

#include "lockstep/base/error.h"

namespace lockstep::launcher {
namespace {

using monitor::Phase;
using std::chrono::nanoseconds;

constexpr auto kForEver = nanoseconds::max();
constexpr nanoseconds kLongestGap = std::chrono::seconds(1);
constexpr std::size_t kKeptSteps = 32;

nanoseconds or_for_ever(std::chrono::milliseconds limit) {
  return limit.count() > 0 ? nanoseconds(limit) : kForEver;
}

bool is_step(Phase phase) {
  return phase == Phase::training || phase == Phase::loading ||
         phase == Phase::exchanging;
}

bool is_new(const std::optional<monitor::Beat>& before, const monitor::Beat& now) {
  return !before || before->time != now.time || before->step != now.step ||
         before->phase != now.phase || before->pid != now.pid;
}

nanoseconds median(std::deque<nanoseconds> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string seconds_text(nanoseconds time) {
  std::array<char, 32> text{};
  const int size = std::snprintf(text.data(), text.size(), "%.1f s",
                                 std::chrono::duration<double>(time).count());
  return {text.data(), static_cast<std::size_t>(size)};
}

bool waits(const std::optional<monitor::Beat>& beat) {
  return beat && beat->phase == Phase::exchanging;
}

}  // namespace

HangJudge::HangJudge(const HangLimits& limits, int ranks, bool several_nodes,
                     const Clock& clock)
    : limits_(limits),
      several_nodes_(several_nodes),
      clock_(clock),
      ranks_(static_cast<std::size_t>(ranks)) {}

void HangJudge::note(Rank& rank, const RankLook& look, nanoseconds passed) const {
  if (look.state == 't') return;  // a person looks at it with a debugger
  rank.quiet += passed;
  rank.since_step += passed;
  if (!look.beat || !is_new(rank.beat, *look.beat)) return;
  const auto& beat = *look.beat;
  if (!is_step(beat.phase)) rank.plain = false;
  if (!rank.beat || beat.step != rank.beat->step) {
    // Several steps may lie between two looks.
    const auto steps = rank.beat ? beat.step - rank.beat->step : 0;
    if (rank.plain && steps > 0) {
      rank.steps.push_back(rank.since_step / steps);
      if (rank.steps.size() > kKeptSteps) rank.steps.pop_front();
    }
    rank.since_step = nanoseconds(0);
    rank.plain = is_step(beat.phase);
  }
  rank.beat = beat;
  rank.quiet = nanoseconds(0);
}

nanoseconds HangJudge::step_limit(const Rank& rank) const {
  if (limits_.step_floor.count() <= 0) return kForEver;
  if (rank.steps.empty()) return or_for_ever(limits_.first_step);
  const std::chrono::duration<double, std::nano> usual = median(rank.steps);
  return std::max<nanoseconds>(
      limits_.step_floor,
      std::chrono::duration_cast<nanoseconds>(limits_.step_factor * usual));
}

nanoseconds HangJudge::limit(const Rank& rank, bool all_wait) const {
  if (!rank.beat) return or_for_ever(limits_.startup);
  switch (rank.beat->phase) {
    case Phase::starting:
      return or_for_ever(limits_.startup);
    case Phase::training:
      return step_limit(rank);
    case Phase::evaluating:
      return or_for_ever(limits_.evaluation);
    case Phase::loading:
      return or_for_ever(limits_.loading);
    case Phase::exchanging:
      if (!all_wait) return kForEver;
      // Whoever they wait for may be on another machine, and busy with a save.
      return several_nodes_ ? or_for_ever(limits_.saving) : step_limit(rank);
    case Phase::saving:
    case Phase::stopping:
    case Phase::finished:
      break;
  }
  return or_for_ever(limits_.saving);
}

std::optional<Hang> HangJudge::look(const std::vector<RankLook>& looks) {
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
  if (!late) return std::nullopt;
  const auto guilty = blame(looks, *late);
  return Hang{.local_rank = static_cast<int>(guilty),
              .because = describe(guilty, looks[guilty], all_wait)};
}

std::optional<std::size_t> HangJudge::latest(const std::vector<RankLook>& looks,
                                             bool all_wait) const {
  std::optional<std::size_t> late;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    const auto& rank = ranks_[i];
    if (!looks[i].running || looks[i].state == 't') continue;
    auto allowed = limit(rank, all_wait);
    // A stopped process is at no work that could take its time.
    if (looks[i].state == 'T' && limits_.step_floor.count() > 0) {
      const auto step = rank.steps.empty() ? limits_.step_floor : step_limit(rank);
      allowed = std::min(allowed, step);
    }
    if (rank.quiet < allowed) continue;
    if (!late || rank.quiet > ranks_[*late].quiet) late = i;
  }
  return late;
}

// Others stand still with the late one: which of them holds up the rest?
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
