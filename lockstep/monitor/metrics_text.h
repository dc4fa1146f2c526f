#pragma once

#include <string>
#include <vector>

#include "lockstep/monitor/metrics.h"

namespace lockstep::monitor {

// Returns the metrics in the text of a metrics file, each step once: for those who read
// the file themselves, because they have a limit for it.
std::vector<Metrics> parse_metrics(const std::string& text);

}  // namespace lockstep::monitor
