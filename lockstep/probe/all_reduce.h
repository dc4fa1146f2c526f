#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/comm/join.h"
#include "lockstep/hardware/gpu_check.h"
#include "lockstep/hardware/measured.h"
#include "lockstep/probe/timing.h"

namespace lockstep::probe {

// Sums whose every value is known, of several lengths, on all ranks. What went wrong on
// this rank, "" if nothing.
//
// Collective.
std::string check_all_reduce(comm::World& world);

// Times sums of so many bytes each. What is measured is the same on all ranks.
// Fault::hardware where a sum is wrong.
//
// Collective.
std::vector<hardware::MeasuredCollective> measure_all_reduce(
    comm::World& world, const std::vector<std::int64_t>& bytes, const Effort& effort);

}  // namespace lockstep::probe
