#pragma once

#include <string>
#include <vector>

#include "lockstep/base/process.h"
#include "lockstep/cli/command.h"
#include "lockstep/config/load.h"
#include "lockstep/run/run_directory.h"

// What the commands that start a worker for an answer share: `lockstep eval`, `lockstep
// predict`, `lockstep checkpoint export` and `lockstep config check`.
namespace lockstep::cli {

Operand inference_run();
run::RunDirectory inference_run_directory(const std::string& command,
                                          const Arguments& arguments,
                                          const Context& context);
std::vector<Option> inference_options();

// Starts the worker in a mode with the config and the weights of the run that is named,
// and returns its output and exit status. `words` are its other words; output that is
// not caught goes to our standard output. Throws Fault::config for a run that has no
// weights yet.
struct InferenceCall {
  std::string command;  // "eval"
  std::vector<std::string> words = {};
  bool catches_output = false;
  std::string mode = "--infer";
};
process::Output run_inference(const InferenceCall& call, const Arguments& arguments,
                              const Context& context);

// The same with a config, which names its weights if the mode needs some.
process::Output run_inference(const InferenceCall& call, const config::Loaded& config,
                              const Context& context);

// Returns the status to exit with after a worker that has ended so.
int status_of(const process::End& end);

}  // namespace lockstep::cli
