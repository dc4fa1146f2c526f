#include "lockstep/train/weight_files.h"

#include <fmt/format.h>

#include "lockstep/base/log.h"
#include "lockstep/checkpoint/adapters.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/config/decisions.h"

namespace lockstep::train {

// Parameters that are whole on no rank become so one bucket at a time.
checkpoint::WholeTensor WeightFiles::whole_tensors() const {
  return [this](const torch::Tensor& tensor) {
    return parts_.strategy.full_parameter(tensor);
  };
}

std::string WeightFiles::write(const std::string& name) {
  const bool all_take_part = parts_.strategy.forwards_must_match();
  if (parts_.world.rank() != 0 && !all_take_part) return "";
  parts_.reporter.beat(parts_.state.steps, run::Phase::saving);
  const auto file = parts_.run.path() / name;
  const auto state = checkpoint::state_of(parts_.model);
  if (parts_.world.rank() != 0) {
    checkpoint::visit_in_file_order(state, whole_tensors());
    return "";
  }
  checkpoint::write_safetensors(file, state, whole_tensors());
  log::info("train", fmt::format("weights written to {}", file.string()));
  parts_.callbacks.call([&](auto& c, auto& at) { c.on_saved(at, file); });
  return file.string();
}

std::string WeightFiles::write_adapter(const std::string& name) {
  const bool all_take_part = parts_.strategy.forwards_must_match();
  if (parts_.world.rank() != 0 && !all_take_part) return "";
  parts_.reporter.beat(parts_.state.steps, run::Phase::saving);
  if (parts_.world.rank() != 0) {
    checkpoint::visit_in_file_order(checkpoint::adapters_of(parts_.model),
                                    whole_tensors());
    return "";
  }
  const auto folder = parts_.run.path() / name;
  checkpoint::write_adapters(folder, {parts_.model, parts_.lora,
                                      parts_.model_config.weights, whole_tensors()});
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
