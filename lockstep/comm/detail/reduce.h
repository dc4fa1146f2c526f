#pragma once

#include <cstddef>
#include <span>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm::detail {

struct Reduction {
  torch::Dtype dtype = torch::kFloat32;
  Reduce op = Reduce::sum;
};

bool can_reduce(torch::Dtype dtype) noexcept;

// Reduces element by element over the parts, in their order, whatever the length: the
// bits do not depend on a buffer's chunks. Halves are summed in float and rounded once.
// The result goes to every one of `outs`, which may be parts.
void reduce(const Reduction& reduction, std::span<const char* const> parts,
            std::span<char* const> outs, std::size_t num_elements);

}  // namespace lockstep::comm::detail
