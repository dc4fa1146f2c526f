#pragma once

#include <cstdint>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

struct Extremes {
  std::int64_t smallest = 0, largest = 0;
};

// Returns the smallest and the largest of the numbers of all ranks. Collective.
Extremes gather_extremes(std::int64_t own, Communicator& cpu);

}  // namespace lockstep::comm
