#pragma once

#include <map>
#include <string>

#include "lockstep/base/files.h"

namespace lockstep::monitor::detail {

// "optim.lr" to "0.001", as a config.yaml of ours writes it: a line a knob. Not the
// reader of recipes: that is no part of the worker, and refuses knobs of other
// versions. Empty if there is no such file.
std::map<std::string, std::string> read_knobs(const files::Path& config_yaml);

}  // namespace lockstep::monitor::detail
