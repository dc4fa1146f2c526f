#pragma once

#include <string>
#include <vector>

#include "lockstep/planner/search.h"

// What the search and its reasons share.
namespace lockstep::planner::detail {

// The gain in samples a second that shards have to bring where the whole state fits:
// 0.95 of theirs must still be more.
constexpr double kClearGain = 0.95;
// Speeds that differ by less are taken for equal.
constexpr double kEqualSpeeds = 0.001;

// Returns why a candidate is excluded, whatever it would cost; "" if it is not.
std::string excluded(const Constraints& constraints, const Candidate& candidate);
// Returns why a candidate is barred, for all reasons but the device's memory.
std::string barred(const CostInputs& inputs, const Constraints& constraints,
                   const Candidate& candidate);
// Returns what offloading would need of the host and does not get; "" if it does.
std::string host_lacks(const CostInputs& inputs, Candidate candidate);
// Writes why those of a sorted list that could have been taken were not.
void say_why(const CostInputs& inputs, std::vector<CandidateOutcome>& list);
// Adds the time of loading samples to that of the rest of a step.
void add_loading(const CostInputs& inputs, const Candidate& candidate, TimeCost& cost);
// Returns "zero3 over 8 ranks with 31.2 GiB each".
std::string short_text(const Prediction& prediction);

// All that a plan was made from.
struct Situation {
  const hardware::Machine& whole;
  const hardware::Machine& in_use;  // without GPUs that parallel.device_ids leaves out
  const Knowledge& knowledge;
  Constraints wanted;  // by the knobs as a user has set them
};

// Returns the candidate of a configuration that has no auto left.
Candidate candidate_of(const config::Config& config);
// Returns the plan's configuration, with what is chosen for each candidate auto again.
config::Config reopened(const Plan& plan);
// Adds predictions, hints and notes to a plan in which no knob is open.
void add_predictions(Plan& plan, const Situation& situation);
// Notes whether the model computes its gradients itself on a GPU, or why not.
void note_own_passes(Plan& plan, const CostInputs& inputs);
// Returns why GPUs are left idle, and what would use them; "" if none is.
std::string why_idle(const Plan& plan, const Situation& situation);

}  // namespace lockstep::planner::detail
