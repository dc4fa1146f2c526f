#pragma once

#include <cstdint>
#include <functional>

#include <torch/torch.h>

namespace lockstep::probe {

// The effort of a measurement. The default suits a user who waits; quick() is for
// tests.
struct Effort {
  double seconds = 0.5;                 // of each measurement, about
  std::int64_t copied_bytes = 1 << 30;  // by one copy, where there is that much room
  std::int64_t host_matrix = 2048;      // rows of the matrices that a CPU multiplies
  std::int64_t gpu_matrix = 8192;       // and a GPU
  int collectives = 20;                 // of each size

  static Effort quick();
};

// Waits until `device` has finished its work.
void finish(const torch::Device& device);

// Returns the seconds that `work` takes on `device` when it is done again and again:
// the median of five rounds, which last about `seconds` together, after some that do
// not count.
double seconds_of(const std::function<void()>& work, const torch::Device& device,
                  double seconds);

}  // namespace lockstep::probe
