#pragma once

#include <cstdint>

#include "lockstep/parallel/strategy.h"

namespace lockstep::train {

inline constexpr int kSomeRank = -1;

// A loss that all ranks have seen.
struct SeenLoss {
  double loss = 0;
  std::int64_t step = 0;
  double lr = 0;
  int rank = kSomeRank;  // whose it is
};

// Throws Fault::diverged, with the parameters whose gradients are bad, if the loss is
// not finite. Collective in that case.
void check_finite(const SeenLoss& seen, parallel::Strategy& strategy);

}  // namespace lockstep::train
