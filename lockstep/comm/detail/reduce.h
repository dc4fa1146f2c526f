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

struct ReducedBuffers {
  std::span<const char* const> parts;
  std::span<char* const> outs;  // may be parts
  std::size_t num_elements;     // of each
};

// Reduces element by element over the parts, in their order, whatever the length: the
// bits do not depend on a buffer's chunks. Halves are summed in float and rounded once.
// The result goes to every one of the outs.
void reduce(const Reduction& reduction, const ReducedBuffers& buffers);

}  // namespace lockstep::comm::detail
