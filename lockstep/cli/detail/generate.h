#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/command.h"

// What `lockstep generate` and `lockstep chat` share.
namespace lockstep::cli {

Operand generation_source();
std::vector<Option> generation_options();

// Returns the words of the worker's --generate, after checking them. Throws
// Fault::config for a value that makes no sense, and for a source that is not there.
std::vector<std::string> generation_words(const Arguments& arguments,
                                          const Context& context);

// Runs the worker with our standard streams. Returns its exit status.
int run_generation(const std::vector<std::string>& words, const Context& context);

}  // namespace lockstep::cli
