#include "lockstep/checkpoint/adapters.h"

#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/pieces.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/hf/peft.h"
#include "lockstep/models/lora.h"
#include "lockstep/storage/safetensors.h"

namespace lockstep::checkpoint {
namespace {

using Path = std::filesystem::path;

std::map<std::string, torch::Tensor> find_adapters(const torch::nn::Module& model) {
  std::map<std::string, torch::Tensor> adapters;
  for (const auto& item : model.named_parameters()) {
    if (models::is_lora(item.key())) adapters[item.key()] = item.value();
  }
  return adapters;
}

void check_config(const hf::Adapter& adapter, const config::LoraConfig& config,
                  const Path& folder) {
  const auto place = (folder / hf::kAdapterConfigName).string();
  if (adapter.rank != config.rank) {
    throw Error(Fault::config, "lora.rank: ", config.rank, ", but '", place,
                "' has r = ", adapter.rank, "; set lora.rank=", adapter.rank);
  }
  if (adapter.alpha == config.alpha) return;
  throw Error(Fault::config, "lora.alpha: ", config.alpha, ", but '", place,
              "' has lora_alpha = ", adapter.alpha, "; set lora.alpha=", adapter.alpha);
}

torch::Tensor read_tensor(const Path& file, const storage::SafetensorsHeader& header,
                          const storage::SafetensorsEntry& entry) {
  auto tensor = torch::empty(entry.shape, dtype_of_name(entry.dtype));
  auto* to = static_cast<std::byte*>(tensor.data_ptr());
  storage::read_in_pieces(file,
                          {header.data_begin + entry.begin, entry.end - entry.begin},
                          [&](std::span<const std::byte> piece) {
                            to = std::copy(piece.begin(), piece.end(), to);
                          });
  return tensor;
}

// Returns the last parts of the names, where they say which layers are adapted; else
// the whole names.
std::vector<std::string> find_targets(const torch::nn::Module& model) {
  std::map<std::string, std::pair<int, int>> by_end;  // adapted, in all
  std::vector<std::string> names;
  for (const auto& layer : models::lora_layers(model)) {
    auto& [adapted, all] = by_end[layer.name.substr(layer.name.rfind('.') + 1)];
    ++all;
    if (!layer.is_adapted) continue;
    ++adapted;
    names.push_back(layer.name);
  }
  std::vector<std::string> ends;
  for (const auto& [end, counts] : by_end) {
    if (counts.first != 0 && counts.first != counts.second) return names;
    if (counts.first != 0) ends.push_back(end);
  }
  return ends;
}

}  // namespace

void load_adapters(const Path& folder, const LoadTarget& target,
                   const config::LoraConfig& config) {
  const torch::NoGradGuard no_grad;
  check_config(hf::read_adapter(folder), config, folder);
  const auto file = folder / hf::kAdapterWeightsName;
  const auto header = storage::read_safetensors_header(file);
  auto left = find_adapters(target.model);
  for (const auto& entry : header.entries) {
    const auto name = hf::from_peft(entry.name);
    const auto found = name ? left.find(*name) : left.end();
    if (found == left.end()) {
      throw Error(Fault::config, "lora.weights: '", file.string(), "' has '",
                  entry.name,
                  "', which is none of the adapters of lora.targets=", config.targets,
                  "; add its layer there");
    }
    const auto shape = found->second.sizes().vec();
    if (entry.shape != shape) {
      throw Error(Fault::config, "lora.weights: '", entry.name, "' in '", file.string(),
                  "' is ", storage::to_text(entry.shape), ", the model's is ",
                  storage::to_text(shape), "; they belong to another model");
    }
    target.set(found->second, read_tensor(file, header, entry));
    left.erase(found);
  }
  if (left.empty()) return;
  throw Error(Fault::config, "lora.weights: '", file.string(), "' has no '",
              hf::to_peft(left.begin()->first),
              "'; take its layer out of lora.targets=", config.targets);
}

NamedTensors adapters_of(const torch::nn::Module& model) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : find_adapters(model)) {
    tensors.emplace_back(hf::to_peft(name), tensor);
  }
  return tensors;
}

void write_adapters(const Path& folder, const AdaptedModel& adapted) {
  const auto& [model, config, base, whole] = adapted;
  std::filesystem::create_directories(folder);
  write_safetensors(folder / hf::kAdapterWeightsName, adapters_of(model), whole);
  files::write_atomically(folder / hf::kAdapterConfigName,
                          hf::adapter_config_json({.rank = config.rank,
                                                   .alpha = config.alpha,
                                                   .dropout = config.dropout,
                                                   .targets = find_targets(model),
                                                   .base = base}));
}

}  // namespace lockstep::checkpoint
