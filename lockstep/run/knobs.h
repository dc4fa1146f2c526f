#pragma once

#include <map>
#include <string>
#include <string_view>

#include "lockstep/base/files.h"

namespace lockstep::run {

// Returns "optim.lr" to "0.001" of a config.yaml of ours, which has a line a knob. It
// is not the reader of recipes: that is no part of the worker, and refuses knobs of
// other versions.
std::map<std::string, std::string> parse_knobs(std::string_view config_yaml);

// Returns those of a file; none if there is no such file.
std::map<std::string, std::string> read_knobs(const files::Path& config_yaml);

}  // namespace lockstep::run
