#include "lockstep/parallel/detail/unit_plan.h"

#include <algorithm>

namespace lockstep::parallel::detail {
namespace {

constexpr std::size_t kRoot = 0;

std::int64_t bytes_of(const torch::nn::Module& module) {
  std::int64_t bytes = 0;
  for (const auto& parameter : module.parameters()) {
    bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  return bytes;
}

bool contains(const torch::nn::Module& outer, const torch::nn::Module& inner) {
  if (&outer == &inner) return false;
  const auto modules = outer.modules(/*include_self=*/false);
  return std::any_of(modules.begin(), modules.end(),
                     [&](const auto& module) { return module.get() == &inner; });
}

void add_uses(UnitPlan& plan, const std::vector<const torch::nn::Module*>& uses) {
  plan.modules = {nullptr};
  plan.unit_of_use = {kRoot};
  plan.outer_use = {kRoot};
  for (const auto* module : uses) {
    const auto known = std::find(plan.modules.begin(), plan.modules.end(), module);
    const auto unit = static_cast<std::size_t>(known - plan.modules.begin());
    if (known == plan.modules.end()) plan.modules.push_back(module);
    auto outer = plan.unit_of_use.size() - 1;
    while (outer != kRoot &&
           !contains(*plan.modules[plan.unit_of_use[outer]], *module)) {
      outer = plan.outer_use[outer];
    }
    plan.unit_of_use.push_back(unit);
    plan.outer_use.push_back(outer);
  }
}

}  // namespace

std::size_t UnitPlan::unit_of(const torch::Tensor& parameter) const {
  const auto found = unit_of_parameter.find(parameter.unsafeGetTensorImpl());
  return found == unit_of_parameter.end() ? kRoot : found->second;
}

UnitPlan plan_units(const std::vector<const torch::nn::Module*>& uses,
                    std::int64_t persist_below) {
  UnitPlan plan;
  add_uses(plan, uses);
  for (std::size_t unit = 1; unit < plan.num_units(); ++unit) {
    for (const auto& parameter : plan.modules[unit]->parameters()) {
      const auto [at, is_new] =
          plan.unit_of_parameter.emplace(parameter.unsafeGetTensorImpl(), unit);
      if (is_new || at->second == kRoot) continue;
      const auto& before = *plan.modules[at->second];
      if (contains(before, *plan.modules[unit])) {
        at->second = unit;
      } else if (!contains(*plan.modules[unit], before)) {
        at->second = kRoot;
      }
    }
  }
  for (auto& [parameter, unit] : plan.unit_of_parameter) {
    if (unit != kRoot && bytes_of(*plan.modules[unit]) < persist_below) unit = kRoot;
  }
  return plan;
}

}  // namespace lockstep::parallel::detail
