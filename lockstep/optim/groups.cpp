#include "lockstep/optim/groups.h"

#include <algorithm>
#include <cmath>

#include <fnmatch.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::optim {
namespace {

bool is_number(const std::string& part) {
  return !part.empty() && std::all_of(part.begin(), part.end(),
                                      [](char c) { return c >= '0' && c <= '9'; });
}

std::string layer_of(const std::string& name) {
  const auto parts = text::split(name, '.');
  std::string layer;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    layer += (i > 0 ? "." : "") + parts[i];
    if (is_number(parts[i])) return layer;
  }
  return parts[0];
}

// Returns the number of each parameter's layer.
std::vector<std::size_t> layers_of(std::span<const ParameterShape> parameters,
                                   std::size_t& num_layers) {
  std::vector<std::string> names;
  std::vector<std::size_t> layers;
  for (const auto& parameter : parameters) {
    const auto layer = layer_of(parameter.name);
    const auto found = std::find(names.begin(), names.end(), layer);
    layers.push_back(static_cast<std::size_t>(found - names.begin()));
    if (found == names.end()) names.push_back(layer);
  }
  num_layers = names.size();
  return layers;
}

// Selects the parameters without decay.
class NoDecay {
 public:
  NoDecay(const std::string& knob, std::span<const ParameterShape> parameters)
      : vectors_(knob == "auto") {
    if (knob == "none" || vectors_) return;
    for (const auto& part : text::split(knob, ',')) {
      patterns_.emplace_back(text::trim(part));
    }
    for (const auto& pattern : patterns_) {
      const bool used =
          std::any_of(parameters.begin(), parameters.end(),
                      [&](const auto& p) { return fits(pattern, p.name); });
      if (used) continue;
      throw Error(Fault::config, "optim.no_decay: '", pattern,
                  "' fits no parameter; the first is '",
                  parameters.empty() ? "" : parameters[0].name,
                  "'; write none, auto, or patterns like *.bias");
    }
  }

  bool has(const ParameterShape& parameter) const {
    if (vectors_) return parameter.num_dimensions <= 1;
    return std::any_of(patterns_.begin(), patterns_.end(), [&](const auto& pattern) {
      return fits(pattern, parameter.name);
    });
  }

 private:
  static bool fits(const std::string& pattern, const std::string& name) {
    return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  }

  bool vectors_;
  std::vector<std::string> patterns_;
};

}  // namespace

std::vector<ParameterOptions> parameter_options(
    const config::OptimConfig& config, std::span<const ParameterShape> parameters) {
  std::size_t num_layers = 0;
  const auto layers = layers_of(parameters, num_layers);
  const NoDecay no_decay(config.no_decay, parameters);
  std::vector<ParameterOptions> options;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto above = static_cast<double>(num_layers - 1 - layers[i]);
    options.push_back(
        {.lr_scale = std::pow(config.layer_decay, above),
         .weight_decay = no_decay.has(parameters[i]) ? 0 : config.weight_decay});
  }
  return options;
}

}  // namespace lockstep::optim
