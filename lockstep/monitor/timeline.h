#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/files.h"

// The time of steps by phase, for all ranks: trace.json of a run, in the form that
// chrome://tracing and Perfetto show (docs/profiling.md).
namespace lockstep::monitor {

// The phases of a rank's step, one after the other.
enum class StepPhase { data, forward, backward, communication, optimizer };
inline constexpr std::size_t kNumPhases = 5;
std::string_view name_of(StepPhase phase) noexcept;

// A piece of a rank's time.
struct Span {
  enum class Kind {
    step,        // from its batch to its last update
    phase,       // within a step
    gradients,   // a bucket of them travels, `index` says which
    parameters,  // the same of updated parameters
  };
  Kind kind = Kind::step;
  StepPhase phase = StepPhase::data;  // of Kind::phase
  std::int64_t step = 0;              // counted from 1
  std::int64_t index = 0;             // of a step: the samples of this rank
  double begin = 0;                   // seconds, on the steady clock of rank 0's host
  double end = 0;
};

struct RankTimeline {
  std::vector<Span> spans;
  // The CPU time of the rank's process in the timed steps; of ranks that are threads
  // only the first has it.
  double cpu_seconds = 0;
  std::int64_t peak_memory_bytes = 0;
};

struct Timeline {
  std::string device;   // "cpu" or "cuda"
  std::string backend;  // of the collectives
  std::vector<RankTimeline> ranks;

  double begin() const;  // of the first step, over all ranks
  double end() const;    // of the last
};

// Returns JSON: a process for each rank, on one of its tracks the steps with their
// phases, on the other what travels. Two parcels never overlap there: one begins when
// the one before it was there, since they travel in this order.
std::string to_chrome_trace(const Timeline& timeline);

// Reads what it has written, to the nanosecond; throws Fault::io for anything else.
Timeline read_chrome_trace(const files::Path& path);

// The means over the steps and ranks.
struct PhaseSplit {
  std::int64_t steps = 0;
  int ranks = 0;
  double step_seconds = 0;
  // Times by StepPhase. That of communication is exposed: nothing else was done
  // meanwhile.
  std::array<double, kNumPhases> phases{};
  double travel_seconds = 0;  // in which anything travelled, hidden or exposed

  double of(StepPhase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  double other_seconds() const;  // of a step, in none of the phases
};
PhaseSplit split_of(const Timeline& timeline);

// Returns a table with milliseconds and shares.
std::string to_table(const PhaseSplit& split);

// Returns the seconds of every step, by rank.
std::vector<std::vector<double>> step_seconds(const Timeline& timeline);

}  // namespace lockstep::monitor
