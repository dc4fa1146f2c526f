#pragma once

#include <string>
#include <vector>

#include "apps/worker_entry.h"

namespace lockstep {

// `words` come behind --infer: the words of `lockstep eval`, `lockstep predict` and
// `lockstep checkpoint export`, which have checked them: a recipe whose model.weights
// are trained, what is wanted, files. Returns the exit status.
int run_inference(const std::vector<std::string>& words, ConfigLoader load);

}  // namespace lockstep
