#pragma once

#include <string>
#include <vector>

#include "lockstep/monitor/run_directory.h"

// Tables of a report that are more than a file read back.
namespace lockstep::monitor::detail {

using Rows = std::vector<std::vector<std::string>>;

// The machine of a run in words, a fact a row; none where the run does not tell.
Rows machine_rows(const RunDirectory& run);

// Predicted and measured side by side, with a header; none where there was no
// prediction.
Rows prediction_rows(const RunDirectory& run);

}  // namespace lockstep::monitor::detail
