#pragma once

#include <optional>
#include <vector>

namespace lockstep::service {

// A job that has cores and GPUs, or waits for them.
struct Load {
  int cores = 1;
  double gpus = 0;                // with shares
  std::optional<double> seconds;  // that it will have them; nothing: not known
};

struct Capacity {
  int cores = 0;
  double gpus = 0;
};

// Returns for each waiting job, in the order of their turns, in how many seconds it
// will start; nothing where that hangs on a job of which nobody knows how long it
// takes. A pure function.
std::vector<std::optional<double>> forecast(const Capacity& capacity,
                                            std::vector<Load> running,
                                            const std::vector<Load>& waiting);

}  // namespace lockstep::service
