#pragma once

#include <memory>
#include <string_view>

#include "lockstep/config/data.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

enum class Split { train, eval };

// Returns data.train_samples or data.eval_samples; 0: all.
std::int64_t sample_limit(const config::DataConfig& config, Split split);

// Returns data.dir, or throws Fault::config with the files that the folder should hold.
std::string require_folder(const config::DataConfig& config, std::string_view holds);

// Returns whether a path, from the data's folder on, says that a file is to evaluate
// on: it has a word such as "val" or "test" in it. "testament" is another word.
bool names_eval(std::string_view path);

}  // namespace lockstep::data
