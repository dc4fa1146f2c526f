#pragma once

#include <string>
#include <utility>

#include <torch/torch.h>

#include "lockstep/checkpoint/pieces.h"
#include "lockstep/parallel/layout.h"
#include "lockstep/parallel/shards.h"

namespace lockstep::parallel::detail {

// The elements of one parameter within a flat tensor.
struct SlotElements {
  const Parameter& parameter;
  const ParameterSlot& slot;
  const Shard& part;  // what is wanted of the group
  const Shard& home;  // what a flat tensor holds of it
};

// Returns the part of a shard that a rank writes: those that have it share it out.
Shard to_write(const Shard& shard, const RankIndex& replica);

// Adds those of `flat`, a tensor and its name in a checkpoint, if there are any.
void add_piece(checkpoint::Pieces& pieces, const SlotElements& of,
               const std::pair<std::string, torch::Tensor>& flat);

}  // namespace lockstep::parallel::detail
