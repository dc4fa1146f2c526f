#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/config/load.h"
#include "lockstep/launcher/job.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/planner/plan.h"

// Short runs of a recipe that a command makes to look at: parity's sizes, bench's
// combinations, the sweep of find-lr.
namespace lockstep::cli {

// Sets knobs for a command, and remembers those that change what somebody said.
class Settings {
 public:
  Settings(config::Loaded& loaded, std::string command)
      : loaded_(loaded), command_(std::move(command)) {}

  // On the command line.
  bool typed(const std::string& key) const;

  // Fault::config, with the reason, for a knob that was typed and is another one.
  void set(const std::string& key, const std::string& value,
           const std::string& because);

  std::vector<planner::Choice> take() { return std::move(made_); }

 private:
  config::Loaded& loaded_;
  std::string command_;
  std::vector<planner::Choice> made_;
};

// So many steps and nothing else: no evaluation to speak of, no weights.
void only_steps(Settings& settings, const config::Config& config, std::int64_t steps);

// "1,2,3" of --ranks; Fault::config for what is no list of different sizes.
std::vector<int> rank_list(const std::string& list);

// Makes runs below one directory.
struct Trials {
  std::filesystem::path directory;
  std::filesystem::path worker;
  Context& context;
  launcher::Signals& signals;
};

monitor::RunDirectory make_trial(const Trials& trials, const planner::Plan& plan);

// Runs the ranks to their end, with `more` after the worker's own arguments; what they
// print goes to their logs.
launcher::JobResult run_trial(const Trials& trials, const planner::Plan& plan,
                              const monitor::RunDirectory& run,
                              const std::vector<std::string>& more = {});

}  // namespace lockstep::cli
