#include "lockstep/models/lora.h"

#include <algorithm>

#include <fnmatch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/models/linear.h"

namespace lockstep::models {
namespace {

struct NamedLayer {
  std::string name;
  LinearImpl* layer = nullptr;
};

std::vector<NamedLayer> adaptable(const torch::nn::Module& model) {
  std::vector<NamedLayer> layers;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    auto* layer = dynamic_cast<LinearImpl*>(item.value().get());
    if (layer != nullptr) layers.push_back({item.key(), layer});
  }
  return layers;
}

[[noreturn]] void throw_no_layer(const std::string& pattern,
                                 const std::vector<NamedLayer>& layers) {
  if (layers.empty()) {
    throw Error(Fault::config,
                "lora.targets: the model has no layer that can be adapted; set "
                "lora.rank=0, or use a model with such layers (gpt)");
  }
  // The first block is enough of an example: the others have the same names.
  std::vector<std::string> names;
  for (const auto& [name, layer] : layers) {
    if (names.size() < 6) names.push_back(name);
  }
  throw Error(Fault::config, "lora.targets: no layer fits '", pattern, "'; there are ",
              layers.size(), ", such as ", text::join(names, ", "));
}

}  // namespace

std::vector<std::string> add_lora(torch::nn::Module& model,
                                  const config::LoraConfig& config) {
  const auto layers = adaptable(model);
  std::vector<bool> is_target(layers.size());
  for (const auto& part : text::split(config.targets, ',')) {
    const std::string pattern(text::trim(part));
    bool fits_one = false;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (::fnmatch(pattern.c_str(), layers[i].name.c_str(), 0) != 0) continue;
      is_target[i] = fits_one = true;
    }
    if (!fits_one) throw_no_layer(pattern, layers);
  }
  for (auto& parameter : model.parameters()) parameter.set_requires_grad(false);
  const LoraShape shape{.rank = config.rank,
                        .scale = config.alpha / static_cast<double>(config.rank),
                        .dropout = config.dropout};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!is_target[i]) continue;
    layers[i].layer->add_lora(shape);
    names.push_back(layers[i].name);
  }
  return names;
}

bool has_lora(const torch::nn::Module& model) {
  const auto layers = adaptable(model);
  return std::any_of(layers.begin(), layers.end(),
                     [](const auto& one) { return one.layer->has_lora(); });
}

std::vector<LoraLayer> lora_layers(const torch::nn::Module& model) {
  std::vector<LoraLayer> layers;
  for (const auto& [name, layer] : adaptable(model)) {
    layers.push_back({name, layer->has_lora()});
  }
  return layers;
}

bool is_lora(const std::string& parameter) {
  return parameter.ends_with(".lora_A") || parameter.ends_with(".lora_B");
}

std::vector<MergedTensor> merged_tensors(const torch::nn::Module& model) {
  std::vector<MergedTensor> tensors;
  const auto layers = adaptable(model);
  const auto plain = [&](const auto& item) {
    tensors.push_back({item.key(), [tensor = item.value()] { return tensor; }});
  };
  for (const auto& item : model.named_parameters()) {
    if (is_lora(item.key())) continue;
    const auto found = std::find_if(layers.begin(), layers.end(), [&](const auto& one) {
      return one.name + ".weight" == item.key();
    });
    if (found == layers.end()) {
      plain(item);
    } else {
      tensors.push_back(
          {item.key(), [layer = found->layer] { return layer->merged_weight(); }});
    }
  }
  for (const auto& item : model.named_buffers()) plain(item);
  return tensors;
}

std::vector<std::pair<std::string, torch::Tensor>> merged_state(
    const torch::nn::Module& model) {
  std::vector<std::pair<std::string, torch::Tensor>> state;
  for (const auto& [name, value] : merged_tensors(model)) {
    state.emplace_back(name, value());
  }
  return state;
}

}  // namespace lockstep::models
