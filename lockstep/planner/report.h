#pragma once

#include <string>

#include "lockstep/planner/plan.h"

// A plan for a user to read.
namespace lockstep::planner {

// `all` shows every candidate, not only the best of each strategy and number of ranks.
std::string report(const Plan& plan, const hardware::Machine& machine, bool all);

// Returns the table of candidates alone.
std::string candidate_table(const std::vector<CandidateOutcome>& candidates, bool all);

// Returns "predicted 1.2 GiB a rank, 12.3 ms a step, 10,400 samples/s, 01:23 in all".
std::string summary(const Plan& plan);

// Turns 0.0123 into "12.3 ms".
std::string seconds_text(double seconds);

}  // namespace lockstep::planner
