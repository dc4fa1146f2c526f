#pragma once

#include <string>
#include <vector>

#include "lockstep/config/load.h"
#include "lockstep/hf/gpt2.h"

namespace lockstep::hf {

// Makes the knobs of a recipe those of the weights that it begins with: a name of
// model.weights becomes its folder in `models`, sizes that nobody set become those of
// config.json, with Origin::planner. Returns sentences for the user.
//
// Throws Fault::config, with both numbers, the file and the knob, for sizes that
// contradict; and what Weights throws. Does nothing for a recipe without weights, or
// with a file of them.
std::vector<std::string> settle(config::Loaded& loaded, const Path& models);

// Throws Fault::config as settle() does, for knobs that are settled; whoever builds a
// model asks. Also for rows that fill up a vocabulary whose size is not said: an export
// could not leave them out.
void check_settled(const config::Config& config);

}  // namespace lockstep::hf
