#include "lockstep/jobs/settle_model.h"

#include "lockstep/base/error.h"
#include "lockstep/hf/settle.h"

namespace lockstep::jobs {

std::filesystem::path models_directory(const config::ModelsConfig& config,
                                       const Caller& caller) {
  if (!config.dir.empty()) return config.dir;
  const std::filesystem::path named = caller.variable("XDG_DATA_HOME").value_or("");
  // A relative one is to be ignored, says the standard of these variables.
  if (named.is_absolute()) return named / "lockstep/models";
  const std::filesystem::path home = caller.variable("HOME").value_or("");
  if (home.is_absolute()) return home / ".local/share/lockstep/models";
  throw Error(Fault::config,
              "models.dir: is empty, and HOME is not set; name the folder of the "
              "models");
}

config::Loaded settle_model(config::Loaded wanted, const Caller& caller) {
  const bool has_weights = !wanted.config.model.weights.empty();
  const auto models = has_weights ? models_directory(wanted.config.models, caller) : "";
  const bool quiet = wanted.config.monitor.verbosity == config::Verbosity::quiet;
  for (const auto& sentence : hf::settle(wanted, models)) {
    if (!quiet) caller.say(sentence);
  }
  return wanted;
}

}  // namespace lockstep::jobs
