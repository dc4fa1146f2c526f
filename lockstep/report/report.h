#pragma once

#include <string>
#include <vector>

#include "lockstep/run/run_directory.h"

namespace lockstep::report {

// Returns one HTML page about a run, or about several laid over each other: curves,
// plan, config, hardware, events, and for several the differences of their configs. The
// page needs no other file and no network. Parts that a run lacks are left out; a run
// that can not be read is Fault::config or Fault::io.
std::string report_html(const std::vector<run::RunDirectory>& runs);

}  // namespace lockstep::report
