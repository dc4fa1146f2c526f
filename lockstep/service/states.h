#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace lockstep::service {

// The state of a job. Stored by these names: existing ones never change.
enum class JobState {
  queued,    // waits for its turn
  planning,  // its supervisor was started and has not begun to train
  running,
  pausing,  // was asked to make a checkpoint and to give back what it runs on
  paused,
  stopping,  // was cancelled and may still make a checkpoint
  done,
  failed,
  cancelled,
  interrupted,  // the machine went down under it; it can be resumed
};

// Those in which a supervisor works on it.
inline constexpr std::array kActiveStates{JobState::planning, JobState::running,
                                          JobState::pausing, JobState::stopping};

// What a job does. Stored by these names: existing ones never change.
enum class JobKind {
  training,
  plan,  // says how its recipe would be trained, and trains nothing
};

std::string_view name_of(JobKind kind) noexcept;
std::optional<JobKind> job_kind_of(std::string_view name) noexcept;

std::string_view name_of(JobState state) noexcept;
std::optional<JobState> job_state_of(std::string_view name) noexcept;

// Returns whether nothing happens any more unless somebody asks for it: done, failed,
// cancelled.
bool is_over(JobState state) noexcept;

// Returns whether a supervisor works on it.
bool is_active(JobState state) noexcept;

// Returns whether a job may go from one state to the other.
bool may_follow(JobState from, JobState to) noexcept;

}  // namespace lockstep::service
