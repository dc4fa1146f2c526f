#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/config/optim.h"

namespace lockstep::optim {

// The properties of a parameter that the rules for options use.
struct ParameterShape {
  std::string name;  // "blocks.3.linear.weight"
  int num_dimensions = 0;
};

struct ParameterOptions {
  double lr_scale = 1;
  double weight_decay = 0;

  friend bool operator==(const ParameterOptions&, const ParameterOptions&) = default;
};

// Returns the options of each parameter of a model, in the order of the model: a pure
// function of optim.weight_decay, optim.no_decay and optim.layer_decay.
//
// A layer is the part of a name up to its first number ("blocks.3"), or its first part
// if it has none ("embed"); layers count in the order of their first parameter, and the
// last one learns at the full rate.
std::vector<ParameterOptions> parameter_options(
    const config::OptimConfig& config, std::span<const ParameterShape> parameters);

}  // namespace lockstep::optim
