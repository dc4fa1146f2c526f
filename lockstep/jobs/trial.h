#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/config/load.h"
#include "lockstep/jobs/caller.h"
#include "lockstep/launcher/job.h"
#include "lockstep/planner/plan.h"
#include "lockstep/run/run_directory.h"

// Short runs of a recipe that a command makes for a comparison: parity's sizes, bench's
// combinations, the sweep of find-lr.
namespace lockstep::jobs {

// Sets knobs for a command, and remembers those that change a user's choice.
class Settings {
 public:
  Settings(config::Loaded& loaded, std::string command)
      : loaded_(loaded), command_(std::move(command)) {}

  // Returns whether the knob was set on the command line.
  bool typed(const std::string& key) const;

  // Throws Fault::config, with the reason, for a knob that was typed otherwise.
  void set(const std::string& key, const std::string& value,
           const std::string& because);

  std::vector<planner::Choice> take() { return std::move(made_); }

 private:
  config::Loaded& loaded_;
  std::string command_;
  std::vector<planner::Choice> made_;
};

// Sets so many steps and nothing else: no evaluation to speak of, no weights.
void only_steps(Settings& settings, const config::Config& config, std::int64_t steps);

// Makes runs below one directory.
struct Trials {
  std::filesystem::path directory;
  std::filesystem::path worker;
  const Caller& caller;
  launcher::Signals& signals;
};

run::RunDirectory make_trial(const Trials& trials, const planner::Plan& plan);

struct Trial {
  const planner::Plan& plan;
  const run::RunDirectory& run;
  std::vector<std::string> arguments = {};  // behind the worker's own
};

// Runs the ranks to their end; what they print goes to their logs.
launcher::JobResult run_trial(const Trials& trials, const Trial& trial);

}  // namespace lockstep::jobs
