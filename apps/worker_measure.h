#pragma once

#include <string>
#include <vector>

#include "apps/worker_entry.h"

namespace lockstep {

// `words` come behind --measure: the part, and its options. Measures or tests a part of
// this machine and prints the result as one line of JSON. Returns the exit status.
int run_measure(const std::vector<std::string>& words, ConfigLoader load);

}  // namespace lockstep
