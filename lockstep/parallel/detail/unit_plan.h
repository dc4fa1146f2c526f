#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <torch/torch.h>

namespace lockstep::parallel::detail {

// The units of a model: sets of parameters that are gathered together, and the uses of
// them in the order in which a forward pass comes to them. Unit 0 and use 0 are the
// root: parameters that belong to no other unit, in use for a whole pass.
struct UnitPlan {
  std::vector<const torch::nn::Module*> modules;  // by unit; null for the root
  std::vector<std::size_t> unit_of_use;
  // The use around each one: a unit may contain others. The root's is its own.
  std::vector<std::size_t> outer_use;
  std::unordered_map<const c10::TensorImpl*, std::size_t> unit_of_parameter;

  std::size_t num_units() const noexcept { return modules.size(); }
  // Returns the unit of a parameter; the root's if no other has it.
  std::size_t unit_of(const torch::Tensor& parameter) const;
};

// Plans the units of a model. `uses` names modules as a forward pass comes to them: one
// that is used twice stands there twice, one inside of another behind it. A parameter
// belongs to the innermost unit that has it; to the root if units beside each other
// have it, or if that unit has fewer than `persist_below` bytes.
UnitPlan plan_units(const std::vector<const torch::nn::Module*>& uses,
                    std::int64_t persist_below);

}  // namespace lockstep::parallel::detail
