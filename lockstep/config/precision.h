#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class Precision {
  automatic,
  fp32,
  tf32,
  bf16,
  fp16,
  bf16_params,
  fp16_params,
  fp64
};

constexpr std::array<std::string_view, 8> names_of(Precision) {
  return {"auto", "fp32", "tf32", "bf16", "fp16", "bf16_params", "fp16_params", "fp64"};
}

// Returns whether the parameters have 16 bits, with fp32 copies in the optimizer.
constexpr bool has_half_parameters(Precision mode) {
  return mode == Precision::bf16_params || mode == Precision::fp16_params;
}

// Returns whether gradients are fp16 on their way, so that the loss is scaled.
constexpr bool scales_loss(Precision mode) {
  return mode == Precision::fp16 || mode == Precision::fp16_params;
}

inline constexpr std::string_view kScales = "precision.mode=fp16|fp16_params";
inline constexpr std::string_view kScaling =
    "precision.mode=fp16|fp16_params and precision.loss_scale=0";

// The scale of the loss is fp16's alone: its gradients would vanish below 6e-8.
struct PrecisionConfig {
  Precision mode = Precision::automatic;
  double loss_scale = 0;
  double initial_scale = 65536;
  double growth_factor = 2;
  std::int64_t growth_interval = 2000;
  double backoff_factor = 0.5;
  std::int64_t hysteresis = 1;
  double min_scale = 1;
};

template <typename Visitor>
void describe_scale(PrecisionConfig& c, Visitor& v) {
  v.field("loss_scale", c.loss_scale,
          {.help = "Of fp16: a static loss scale; 0: dynamic.",
           .range = at_least(0),
           .needs = kScales});
  v.field("initial_scale", c.initial_scale,
          {.help = "Of fp16: the initial loss scale.",
           .range = above(0),
           .needs = kScaling});
  v.field("growth_factor", c.growth_factor,
          {.help = "Of fp16: the growth factor of the loss scale.",
           .range = above(1),
           .needs = kScaling});
  v.field("growth_interval", c.growth_interval,
          {.help = "Of fp16: the growth interval: steps without an overflow before the "
                   "loss scale grows.",
           .range = count_from(1),
           .unit = Unit::steps,
           .needs = kScaling});
  v.field("backoff_factor", c.backoff_factor,
          {.help = "Of fp16: the backoff factor of the loss scale after an overflow.",
           .range = {.low = 0, .high = 1, .low_is_open = true, .high_is_open = true},
           .needs = kScaling});
  v.field("hysteresis", c.hysteresis,
          {.help = "Of fp16: the loss scale falls at the n-th overflow since it last "
                   "grew; 1: at every one.",
           .range = count_from(1),
           .needs = kScaling});
  v.field("min_scale", c.min_scale,
          {.help = "Of fp16: an overflow at this loss scale or below ends the run.",
           .range = above(0),
           .needs = kScaling});
}

template <typename Visitor>
void describe(PrecisionConfig& c, Visitor& v) {
  v.field("mode", c.mode,
          {.help = "Precision of the model: fp32, tf32, bf16 and fp16 keep fp32 "
                   "weights (autocast); bf16_params and fp16_params have 16-bit "
                   "weights with fp32 master copies in the optimizer; fp64 is slow, to "
                   "tell errors from rounding."});
  describe_scale(c, v);
}

}  // namespace lockstep::config
