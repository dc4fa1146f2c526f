#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/cli/command.h"
#include "lockstep/monitor/events.h"
#include "lockstep/monitor/heartbeat.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/monitor/run_directory.h"

namespace lockstep::cli {

// What can be read from a run directory at this moment, whatever state it is in. Shared
// by `runs` and `status`, so that they can not disagree.
struct RunView {
  std::string path;
  monitor::RunRecord record;
  bool gone = false;  // not in a final state, but its process does not exist any more
  std::optional<monitor::Beat> beat;  // of rank 0
  std::optional<double> beat_age_seconds;
  std::optional<monitor::Metrics> train;
  std::optional<monitor::Metrics> eval;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> total_steps;
  std::optional<double> duration_seconds;

  std::string state_text() const;     // "running", "failed (process is gone)"
  std::string duration_text() const;  // "01:23", or "-"
};

RunView view_of(const monitor::RunDirectory& run, const Clock& clock = Clock::system());

std::string to_json(const RunView& view);

// By its path, or its id in `directory`; without a word the newest one there.
// Fault::config, beginning with the command, if there is none.
monitor::RunDirectory find_run(std::string_view command,
                               const std::optional<std::string>& run,
                               const std::string& directory);

// Where runs are when nobody says it: run.dir, which the environment may set.
std::string default_run_dir(const Context& context);

// "2026-11-15T03:22:41.125Z" -> "2026-11-15 03:22:41".
std::string short_time(const std::string& iso);

}  // namespace lockstep::cli
