// Models that compute their gradients themselves, in plans.
#include "lockstep/base/str.h"
#include "lockstep/config/decisions.h"
#include "lockstep/planner/cost.h"
#include "lockstep/planner/detail/search.h"
#include "lockstep/planner/history.h"

namespace lockstep::planner {
namespace {

// Returns why they are not taken where model.own_backward is auto; "" if they are.
std::string obstacle_to(const CostInputs& inputs) {
  const auto& of_model = inputs.model.own_passes.obstacle;
  return of_model.empty() ? config::obstacle_to_own_passes(inputs.config) : of_model;
}

}  // namespace

bool takes_own_passes(const CostInputs& inputs) {
  if (!inputs.model.own_passes.exist) return false;
  const auto& asked = inputs.config.model.own_backward;
  if (!asked.is_auto()) return asked.value();
  // The planner's own choice of a precision is another one.
  const bool is_open = inputs.config.precision.mode == config::Precision::automatic;
  return inputs.on_gpu() && !is_open && obstacle_to(inputs).empty();
}

bool takes_own_passes(const CostInputs& inputs, const Candidate& candidate) {
  if (!takes_own_passes(inputs)) return false;
  if (!inputs.config.model.own_backward.is_auto()) return true;
  return candidate.method != Method::zero3 &&
         candidate.method != Method::data_parallel && !candidate.recompute;
}

std::string learnt_as(const run::ModelDescription& model, config::Config config,
                      const hardware::Machine& machine) {
  if (config.parallel.device == config::Device::automatic && !machine.gpus.empty()) {
    config.parallel.device = config::Device::cuda;
  }
  const CostInputs inputs{config, machine, model, {}};
  return takes_own_passes(inputs) ? model.name + ", own passes" : model.name;
}

namespace detail {

void note_own_passes(Plan& plan, const CostInputs& inputs) {
  const bool decides = inputs.config.model.own_backward.is_auto();
  if (!inputs.model.own_passes.exist || !decides || !inputs.on_gpu()) return;
  if (takes_own_passes(inputs)) {
    plan.notes.push_back(str("model.own_backward: the ", inputs.model.name,
                             "'s hand-written passes are used, with fused kernels"));
    return;
  }
  plan.notes.push_back(
      str("model.own_backward: autograd is used, not the ", inputs.model.name,
          "'s hand-written passes, which are faster: ", obstacle_to(inputs)));
}

}  // namespace detail
}  // namespace lockstep::planner
