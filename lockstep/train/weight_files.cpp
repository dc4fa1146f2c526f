#include "lockstep/train/weight_files.h"

#include <fmt/format.h>

#include "lockstep/base/log.h"
#include "lockstep/checkpoint/adapters.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/config/decisions.h"

namespace lockstep::train {

std::string WeightFiles::write(const std::string& name) {
  if (parts_.world.rank() != 0) return "";
  parts_.reporter.beat(parts_.state.steps, run::Phase::saving);
  const auto file = parts_.run.path() / name;
  checkpoint::write_safetensors(file, checkpoint::state_of(parts_.model));
  log::info("train", fmt::format("weights written to {}", file.string()));
  parts_.callbacks.call([&](auto& c, auto& at) { c.on_saved(at, file); });
  return file.string();
}

std::string WeightFiles::write_adapter(const std::string& name) {
  if (parts_.world.rank() != 0) return "";
  parts_.reporter.beat(parts_.state.steps, run::Phase::saving);
  const auto folder = parts_.run.path() / name;
  checkpoint::write_adapters(folder, parts_.model, parts_.lora,
                             parts_.model_config.weights);
  log::info("train", fmt::format("adapters written to {}", folder.string()));
  parts_.callbacks.call([&](auto& c, auto& at) { c.on_saved(at, folder); });
  return folder.string();
}

std::string WeightFiles::write_either(const std::string& name) {
  const bool whole = config::saves_frozen(parts_.lora, parts_.model_config);
  return whole ? write((name.empty() ? "model" : name) + ".safetensors")
               : write_adapter(name.empty() ? "adapter" : name + "_adapter");
}

void WeightFiles::write_final(Result& result) {
  result.weights = write_either("");
  auto* const average = parts_.strategy.average();
  if (average == nullptr) return;
  average->use(true);
  result.average = write_either("ema");
  average->use(false);
}

}  // namespace lockstep::train
