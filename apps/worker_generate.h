#pragma once

#include <string>
#include <vector>

#include "apps/worker_entry.h"

namespace lockstep {

// `words` come behind --generate: the words of `lockstep generate` or `lockstep chat`,
// which has checked them. Prints texts as they come. Returns the exit status.
int run_generate(const std::vector<std::string>& words, ConfigLoader load);

}  // namespace lockstep
