#include "lockstep/models/summary.h"

#include "lockstep/base/text.h"

namespace lockstep::models {
namespace {

// "torch::nn::Conv2dImpl" -> "Conv2d".
std::string short_type(const torch::nn::Module& module) {
  auto name = module.name();
  if (const auto colons = name.rfind("::"); colons != std::string::npos) {
    name = name.substr(colons + 2);
  }
  constexpr std::string_view kSuffix = "Impl";
  if (name.size() > kSuffix.size() && name.ends_with(kSuffix)) {
    name.resize(name.size() - kSuffix.size());
  }
  return name;
}

}  // namespace

std::vector<LayerSummary> summarize(const torch::nn::Module& model) {
  std::vector<LayerSummary> layers;
  for (const auto& item : model.named_modules("", /*include_self=*/true)) {
    LayerSummary layer{.name = item.key().empty() ? "(model)" : item.key(),
                       .type = short_type(*item.value())};
    for (const auto& parameter : item.value()->parameters(/*recurse=*/false)) {
      layer.num_parameters += parameter.numel();
      layer.num_trainable += parameter.requires_grad() ? parameter.numel() : 0;
      layer.num_bytes += static_cast<std::int64_t>(parameter.nbytes());
    }
    if (layer.num_parameters > 0) layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace lockstep::models
