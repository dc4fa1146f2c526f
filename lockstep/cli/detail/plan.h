#pragma once

#include <string>

#include "lockstep/run/run_directory.h"

namespace lockstep::cli {

// Returns predicted and measured side by side, as a table.
std::string comparison_text(const run::Comparison& comparison);

}  // namespace lockstep::cli
