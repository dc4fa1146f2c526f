#pragma once

#include <string>
#include <vector>

#include "apps/worker_entry.h"

namespace lockstep {

// `words` come behind --check-data: those of `lockstep config check`, a recipe. Opens
// its data, makes its task, reads some samples of both parts and prints what there is
// as JSON. Returns the exit status.
int run_check_data(const std::vector<std::string>& words, ConfigLoader load);

}  // namespace lockstep
