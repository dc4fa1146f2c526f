#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/config/field.h"

namespace lockstep::config {

// The names that the worker's registry knows; here so that a recipe can be checked
// without LibTorch.
inline constexpr std::array<std::string_view, 6> kModels = {
    "cnn", "mlp", "resnet9", "resnet18", "resnet34", "resnet50"};

struct ModelConfig {
  std::string name = "cnn";
  std::int64_t hidden = 256;
  std::int64_t layers = 2;
  double dropout = 0.0;
  std::string weights;
};

template <typename Visitor>
void describe(ModelConfig& c, Visitor& v) {
  v.field("name", c.name, {.help = "The model to train.", .choices = kModels});
  v.field("hidden", c.hidden,
          {.help = "Width of the hidden layers.",
           .range = between(1, 65536),
           .unit = Unit::units});
  v.field("layers", c.layers,
          {.help = "Hidden layers of the mlp.",
           .range = between(1, 1000),
           .unit = Unit::layers});
  v.field("dropout", c.dropout,
          {.help = "Share of activations that training sets to zero.",
           .range = from_to_below(0, 1)});
  v.field("weights", c.weights,
          {.help = "A safetensors file with the weights to begin with; empty: random "
                   "ones. checkpoint.allow_missing and checkpoint.ignore hold here, "
                   "too."});
}

}  // namespace lockstep::config
