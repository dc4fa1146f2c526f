#pragma once

#include <string>
#include <vector>

#include "lockstep/monitor/metrics.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::report::detail {

// Returns the confusion matrix of the last evaluation that has one as a table with the
// names of the classes, a row for each true class; "" without eval.metrics=confusion.
std::string confusion_table(const run::RunDirectory& run,
                            const std::vector<monitor::Metrics>& metrics);

}  // namespace lockstep::report::detail
