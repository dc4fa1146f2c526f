#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/monitor/metrics.h"
#include "lockstep/run/events.h"
#include "lockstep/run/heartbeat.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::jobs {

// The current contents of a run directory, whatever state it is in. Shared by `runs`
// and `status`, so that they can not disagree.
struct RunView {
  std::string path;
  run::RunRecord record;
  bool gone = false;  // not in a final state, but its process does not exist any more
  std::optional<run::Beat> beat;  // of rank 0
  std::optional<double> beat_age_seconds;
  std::optional<monitor::Metrics> train;
  std::optional<monitor::Metrics> eval;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> total_steps;
  std::optional<double> duration_seconds;
  std::string kind;  // "train", "find-lr", "bench", "parity", "launch"
  std::vector<std::string> overrides;  // "optim.lr=3e-4", as they were typed
  std::vector<std::string> tags;       // run.tags

  // Returns the last value of a metric: of the evaluation, else of training.
  std::optional<double> find_metric(std::string_view name) const;
  std::string state_text() const;     // "running", "failed (process is gone)"
  std::string duration_text() const;  // "01:23", or "-"
};

RunView view_of(const run::RunDirectory& run, const Clock& clock = Clock::system());

std::string to_json(const RunView& view);

// Finds a run by its path, or its id in `directory`; without a word the newest one
// there. Throws Fault::config, beginning with the command, if there is none.
run::RunDirectory find_run(std::string_view command,
                           const std::optional<std::string>& run,
                           const std::string& directory);

}  // namespace lockstep::jobs
