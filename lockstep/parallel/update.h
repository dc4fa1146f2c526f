#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::parallel {

// Returns the elements of a piece of the flat buffers, from its begin on, whose
// parameters no rank has used in this step. Empty unless find_unused_parameters is set.
std::vector<optim::Elements> unused_elements(const Engine& engine, const Shard& shard);

// Makes an optimizer step in a user's own loop: changes the piece owned()[index] by its
// gradients, as PyTorch's would. A parameter that no rank has used stays as it is, and
// the step does not count for it. The optimizer was made for the values of that piece;
// without shards that is engine.values(index).
//
// Collective: with shards, by rising index; then call engine.wait_for_values().
struct PieceStep {
  optim::Optimizer& optimizer;
  optim::StepArguments arguments = {};
  std::size_t index = 0;
};
void update(Engine& engine, PieceStep step);

}  // namespace lockstep::parallel
