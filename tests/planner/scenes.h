#pragma once

#include "lockstep/planner/plan.h"
#include "lockstep/planner/shipped.h"
#include "tests/support/support.h"

namespace lockstep::test {

using Knobs = std::vector<config::Override>;

// A plan for a model and a machine that ship.
inline planner::Plan shipped_plan(const std::string& model, const std::string& machine,
                                  const Knobs& knobs = {}) {
  return planner::resolve(config::defaults(knobs, {}),
                          planner::shipped_machine(machine),
                          {.model = planner::shipped_model(model)});
}

inline std::string because(const planner::Plan& plan, const std::string& key) {
  for (const auto& choice : plan.choices) {
    if (choice.key == key) return choice.because;
  }
  return "not chosen";
}

}  // namespace lockstep::test
