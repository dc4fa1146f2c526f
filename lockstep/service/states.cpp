#include "lockstep/service/states.h"

#include <array>
#include <cstdint>

namespace lockstep::service {
namespace {

constexpr std::array<std::string_view, 10> kNames{
    "queued",   "planning", "running", "pausing",   "paused",
    "stopping", "done",     "failed",  "cancelled", "interrupted"};

constexpr std::array<std::string_view, 2> kKinds{"training", "plan"};

using States = std::uint16_t;

template <typename... S>
constexpr States set_of(S... states) {
  return static_cast<States>((0 | ... | (1U << static_cast<unsigned>(states))));
}

// The states that may follow each, in the order of the enum. An attempt may end in any
// way whatever was asked of it: a cancelled job can be done before it hears of it.
constexpr States followers(JobState from) {
  using enum JobState;
  switch (from) {
    case queued:
      return set_of(planning, paused, cancelled, failed);
    case planning:
      return set_of(running, pausing, stopping, queued, paused, done, failed, cancelled,
                    interrupted);
    case running:
      return set_of(pausing, stopping, queued, paused, done, failed, cancelled,
                    interrupted);
    case pausing:
      return set_of(stopping, paused, queued, done, failed, cancelled, interrupted);
    case stopping:
      return set_of(done, failed, cancelled);
    case paused:
    case interrupted:
      return set_of(queued, cancelled);
    case done:
      return 0;
    case failed:
    case cancelled:
      return set_of(queued);
  }
  return 0;
}

}  // namespace

std::string_view name_of(JobKind kind) noexcept {
  return kKinds.at(static_cast<std::size_t>(kind));
}

std::optional<JobKind> job_kind_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds.at(i) == name) return static_cast<JobKind>(i);
  }
  return std::nullopt;
}

std::string_view name_of(JobState state) noexcept {
  return kNames.at(static_cast<std::size_t>(state));
}

std::optional<JobState> job_state_of(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames.at(i) == name) return static_cast<JobState>(i);
  }
  return std::nullopt;
}

bool is_over(JobState state) noexcept {
  return (set_of(JobState::done, JobState::failed, JobState::cancelled) &
          set_of(state)) != 0;
}

bool is_active(JobState state) noexcept {
  return (set_of(JobState::planning, JobState::running, JobState::pausing,
                 JobState::stopping) &
          set_of(state)) != 0;
}

bool may_follow(JobState from, JobState to) noexcept {
  return (followers(from) & set_of(to)) != 0;
}

}  // namespace lockstep::service
