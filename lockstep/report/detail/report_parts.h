#pragma once

#include <string>
#include <vector>

#include "lockstep/run/run_directory.h"

// Tables of a report that are more than a file read back.
namespace lockstep::report::detail {

using Rows = std::vector<std::vector<std::string>>;

// Returns the machine of a run in words, a fact a row; none where it is not known.
Rows machine_rows(const run::RunDirectory& run);

// Returns predicted and measured side by side, with a header; none where there was no
// prediction.
Rows prediction_rows(const run::RunDirectory& run);

// Returns how the model has continued eval.prompts, prompt by prompt over the steps,
// with a header; none where there were no prompts.
Rows text_rows(const run::RunDirectory& run);

}  // namespace lockstep::report::detail
