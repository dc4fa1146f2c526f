#pragma once

#include <memory>
#include <string_view>

#include "lockstep/config/data.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

enum class Split { train, eval };

// data.train_samples or data.eval_samples; 0: all.
std::int64_t limit_of(const config::DataConfig& config, Split split);

// data.dir, or Fault::config with what the folder should hold.
std::string folder_of(const config::DataConfig& config, std::string_view holds);

}  // namespace lockstep::data
