#include "lockstep/train/weight_files.h"

#include <fmt/format.h>

#include "lockstep/base/log.h"
#include "lockstep/checkpoint/safetensors.h"

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

void WeightFiles::write_final(Result& result) {
  result.weights = write("model.safetensors");
  auto* const average = parts_.strategy.average();
  if (average == nullptr) return;
  average->use(true);
  result.average = write("ema.safetensors");
  average->use(false);
}

}  // namespace lockstep::train
