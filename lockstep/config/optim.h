#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// The only list of optimizers: X(name, states) is made by optim::make_name() and keeps
// so many numbers for each parameter.
#define LOCKSTEP_OPTIMIZERS(X) \
  X(adamw, 2)                  \
  X(adam, 2)                   \
  X(sgd, 1)                    \
  X(lion, 1)

#define LOCKSTEP_ENUMERATOR(name, states) name,
enum class Optimizer { LOCKSTEP_OPTIMIZERS(LOCKSTEP_ENUMERATOR) };
#undef LOCKSTEP_ENUMERATOR

#define LOCKSTEP_NAME(name, states) std::string_view(#name),
constexpr auto names_of(Optimizer) {
  return std::array{LOCKSTEP_OPTIMIZERS(LOCKSTEP_NAME)};
}
#undef LOCKSTEP_NAME

enum class LrScaling { none, linear, sqrt };

constexpr std::array<std::string_view, 3> names_of(LrScaling) {
  return {"none", "linear", "sqrt"};
}

struct OptimConfig {
  Optimizer name = Optimizer::adamw;
  double lr = 1e-3;
  LrScaling lr_scaling = LrScaling::none;
  std::int64_t base_batch = 256;
  double weight_decay = 0.01;
  std::string no_decay = "none";
  double layer_decay = 1;
  double momentum = 0.9;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double clip_norm = 0;
  double clip_value = 0;
};

// Returns how many numbers the optimizer keeps for each parameter.
constexpr int num_states(const OptimConfig& optim) {
#define LOCKSTEP_STATES(name, states) states,
  constexpr std::array kStates{LOCKSTEP_OPTIMIZERS(LOCKSTEP_STATES)};
#undef LOCKSTEP_STATES
  const bool has_none = optim.name == Optimizer::sgd && optim.momentum == 0;
  return has_none ? 0 : kStates[static_cast<std::size_t>(optim.name)];
}

template <typename Visitor>
void describe_rates(OptimConfig& c, Visitor& v) {
  v.field("name", c.name, {.help = "The optimizer."});
  v.field("lr", c.lr,
          {.help = "Learning rate, before the schedule.", .range = above(0)});
  v.field(
      "lr_scaling", c.lr_scaling,
      {.help = "Scaling of optim.lr with the batch size: multiply it by batch.global / "
               "optim.base_batch (linear), or by the square root of that (sqrt)."});
  v.field("base_batch", c.base_batch,
          {.help = "The global batch size that optim.lr is meant for (lr_scaling).",
           .range = count_from(1),
           .unit = Unit::samples,
           .needs = "optim.lr_scaling!=none"});
  v.field("layer_decay", c.layer_decay,
          {.help = "Learning rate of a layer relative to the next one: below 1, layers "
                   "near the input learn more slowly.",
           .range = {.low = 0, .high = 1, .low_is_open = true}});
}

template <typename Visitor>
void describe(OptimConfig& c, Visitor& v) {
  describe_rates(c, v);
  v.field("weight_decay", c.weight_decay,
          {.help = "Weight decay: decoupled in adamw and lion, added to the gradient "
                   "in adam and sgd.",
           .range = at_least(0)});
  v.field("no_decay", c.no_decay,
          {.help = "Parameters without weight decay: none, auto (biases and norms: "
                   "those of one dimension), or patterns of names: *.bias,embed.*",
           .needs = "optim.weight_decay>0"});
  v.field("momentum", c.momentum,
          {.help = "Momentum of sgd.",
           .range = from_to_below(0, 1),
           .needs = "optim.name=sgd"});
  v.field("nesterov", c.nesterov,
          {.help = "Nesterov momentum of sgd.", .needs = "optim.name=sgd"});
  v.field("beta1", c.beta1,
          {.help = "Decay of the running mean of gradients (adam, adamw, lion).",
           .range = from_to_below(0, 1),
           .needs = "optim.name=adamw|adam|lion"});
  v.field("beta2", c.beta2,
          {.help = "Decay of the running mean of squared gradients (adam, adamw), or "
                   "of lion's momentum between steps, where 0.99 is usual.",
           .range = from_to_below(0, 1),
           .needs = "optim.name=adamw|adam|lion"});
  v.field("eps", c.eps,
          {.help = "Added to the denominator of adam and adamw.",
           .range = above(0),
           .needs = "optim.name=adamw|adam"});
  v.field("clip_norm", c.clip_norm,
          {.help = "Gradient clipping: the largest norm over all parameters; 0: off.",
           .range = at_least(0)});
  v.field("clip_value", c.clip_value,
          {.help = "Gradient clipping: the largest absolute value of an element, after "
                   "clip_norm; 0: off.",
           .range = at_least(0)});
}

}  // namespace lockstep::config
