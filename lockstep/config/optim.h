#pragma once

#include <array>
#include <string_view>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class Optimizer { adamw, sgd };

constexpr std::array<std::string_view, 2> names_of(Optimizer) {
  return {"adamw", "sgd"};
}

struct OptimConfig {
  Optimizer name = Optimizer::adamw;
  double lr = 1e-3;
  double weight_decay = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

template <typename Visitor>
void describe(OptimConfig& c, Visitor& v) {
  v.field("name", c.name, {.help = "The optimizer."});
  v.field("lr", c.lr,
          {.help = "Learning rate, before the schedule.", .range = above(0)});
  v.field(
      "weight_decay", c.weight_decay,
      {.help =
           "Decay of the weights: decoupled in adamw, added to the gradient in sgd.",
       .range = at_least(0)});
  v.field("momentum", c.momentum,
          {.help = "Momentum of sgd.", .range = from_to_below(0, 1)});
  v.field("nesterov", c.nesterov, {.help = "Nesterov's form of sgd's momentum."});
  v.field(
      "beta1", c.beta1,
      {.help = "Decay of adamw's mean of gradients.", .range = from_to_below(0, 1)});
  v.field("beta2", c.beta2,
          {.help = "Decay of adamw's mean of squared gradients.",
           .range = from_to_below(0, 1)});
  v.field("eps", c.eps, {.help = "Added to adamw's denominator.", .range = above(0)});
}

}  // namespace lockstep::config
