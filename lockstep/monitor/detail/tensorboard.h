#pragma once

#include <map>
#include <string>

#include "lockstep/monitor/detail/protobuf.h"
#include "lockstep/run/run_directory.h"

// Summaries of TensorBoard's plugins for text and hyperparameters.
namespace lockstep::monitor::detail {

// Returns the knobs that a user has set, of a config.yaml with sources; all of one
// without. The planner's choices and defaults would fill the table with columns.
std::map<std::string, std::string> chosen_knobs(const std::string& config_yaml);

Message config_page(const run::RunDirectory& run);
Message hparams_experiment(const run::RunDirectory& run, const std::string& primary);
Message hparams_start(const run::RunDirectory& run, double time);
Message hparams_end(bool is_ok, double time);

}  // namespace lockstep::monitor::detail
