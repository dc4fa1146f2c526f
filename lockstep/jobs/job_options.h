#pragma once

#include <chrono>
#include <vector>

#include "lockstep/config/watch.h"
#include "lockstep/jobs/open_run.h"
#include "lockstep/launcher/job.h"
#include "lockstep/launcher/placement.h"

namespace lockstep::jobs {

// Returns when a rank that beats counts as hanging.
launcher::HangLimits hang_limits(const config::WatchConfig& watch);

// Returns for each rank the CPUs near its GPU; nothing when it is not asked for, or
// there are fewer GPUs than ranks.
std::vector<std::vector<int>> near_gpus(launcher::Binding binding, int ranks);

// The choices of the process that starts a run, beside its config.
struct StartOptions {
  std::filesystem::path worker;  // find_worker()
  launcher::Binding binding = launcher::Binding::none;
  int max_restarts = 0;
  std::chrono::milliseconds grace{30'000};  // for a stop
  // Variables for the ranks, beside those of the plan.
  std::vector<std::pair<std::string, std::string>> environment;
  std::function<void(std::string_view sentence)> say;  // while they run
};

// Returns what starts the ranks of a run that was opened. `opened` outlives it.
launcher::Job training_job(const planner::Plan& plan, const OpenedRun& opened,
                           const StartOptions& options);

}  // namespace lockstep::jobs
