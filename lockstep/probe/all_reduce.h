#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/comm/join.h"
#include "lockstep/hardware/gpu_check.h"
#include "lockstep/hardware/measured.h"
#include "lockstep/probe/timing.h"

namespace lockstep::probe {

// Computes sums whose every value is known, of several lengths, on all ranks. Returns
// the problem on this rank, "" if there is none.
//
// Collective.
std::string check_all_reduce(comm::World& world);

// Times sums of so many bytes each. The results are the same on all ranks. Throws
// Fault::hardware where a sum is wrong.
//
// Collective.
std::vector<hardware::MeasuredCollective> measure_all_reduce(
    comm::World& world, const std::vector<std::int64_t>& bytes, const Effort& effort);

}  // namespace lockstep::probe
