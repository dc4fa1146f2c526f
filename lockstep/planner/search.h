#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/planner/plan.h"
#include "lockstep/planner/policies.h"

// The policy `measured`: all ways to train a model on a machine, what each would take,
// and the fastest of those that fit.
namespace lockstep::planner {

// What somebody has named; what is not named is searched.
struct Asked {
  std::optional<Method> method;
  std::optional<int> ranks;
  std::optional<std::int64_t> global;    // samples of a step
  std::optional<std::int64_t> per_rank;  // or of a step and a rank
  std::optional<std::int64_t> micro;
  std::optional<std::int64_t> accumulation;
  std::optional<bool> recompute;
  std::optional<bool> offload;
  bool threads_only = false;    // comm.backend is local
  bool processes_only = false;  // or one of the others
  bool can_recompute = true;    // nothing forbids it
};

Asked asked_of(const config::Config& config);

// Where no global batch is named: the usual one, or near it, so that the ranks and what
// else is named divide it.
std::int64_t usual_global(const config::BatchConfig& batch, int ranks);

// All of them, the best first: what was asked for, is in this build and fits stands
// before the rest, the faster before the slower. `lost` says why each was not taken.
std::vector<Outcome> outcomes(const Scene& scene, const Asked& asked);

// Fault::hardware, with the arithmetic and what of `outcomes` would fit, if the weights
// and what belongs to them are more than a device has: no smaller batch helps then.
void check_state(const Scene& scene, const Prediction& prediction,
                 const std::vector<Outcome>& outcomes);

// The first of `outcomes`, with reasons. Fault::hardware with the arithmetic if nothing
// that was asked for fits.
Wish measured_policy(const Scene& scene, const Asked& asked,
                     const std::vector<Outcome>& outcomes);

}  // namespace lockstep::planner
