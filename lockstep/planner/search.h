#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/planner/plan.h"
#include "lockstep/planner/policies.h"

// The policy `measured`: all ways to train a model on a machine, the cost of each, and
// the fastest of those that fit.
namespace lockstep::planner {

// The knobs that a user has set; the others are searched.
struct Constraints {
  std::optional<Method> method;
  std::optional<int> ranks;
  std::optional<int> shard_group;        // of zero
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

Constraints constraints_of(const config::Config& config);

// Returns the global batch if none is set: the usual one, or near it, so that the ranks
// and other knobs divide it.
std::int64_t usual_global(const config::BatchConfig& batch, int ranks);

// Returns all of them, the best first: those asked for, in this build and fitting come
// before the rest, the faster before the slower. `lost` says why each was not taken.
std::vector<CandidateOutcome> outcomes(const CostInputs& inputs,
                                       const Constraints& constraints);

// Throws Fault::hardware, with the arithmetic and what of `outcomes` would fit, if the
// weights and their state are more than a device has: no smaller batch helps then.
void check_state(const CostInputs& inputs, const Prediction& prediction,
                 const std::vector<CandidateOutcome>& outcomes);

// Returns the first of `outcomes`, with reasons. Throws Fault::hardware with the
// arithmetic if nothing that was requested fits.
Preference measured_policy(const CostInputs& inputs, const Constraints& constraints,
                           const std::vector<CandidateOutcome>& outcomes);

}  // namespace lockstep::planner
