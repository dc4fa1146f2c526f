#include "lockstep/data/split.h"

#include "lockstep/base/error.h"

namespace lockstep::data {

std::int64_t sample_limit(const config::DataConfig& config, Split split) {
  return split == Split::train ? config.train_samples : config.eval_samples;
}

std::string require_folder(const config::DataConfig& config, std::string_view holds) {
  if (!config.dir.empty()) return config.dir;
  throw Error(Fault::config, "data.dir: the data set '", config.name, "' is ", holds,
              "; set data.dir to it");
}

}  // namespace lockstep::data
