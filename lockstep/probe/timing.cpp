#include "lockstep/probe/timing.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/clock.h"

namespace lockstep::probe {

Effort Effort::quick() {
  return {.seconds = 0.05,
          .copied_bytes = 64 << 20,
          .host_matrix = 1024,
          .gpu_matrix = 4096,
          .collectives = 5};
}

void finish(const torch::Device& device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

double seconds_of(const std::function<void()>& work, const torch::Device& device,
                  double seconds) {
  const auto& clock = Clock::system();
  const auto round = [&](std::int64_t times) {
    const auto begin = clock.now();
    for (std::int64_t i = 0; i < times; ++i) work();
    finish(device);
    return seconds_between(begin, clock.now());
  };
  round(2);  // libraries choose their code, memory is touched
  std::int64_t times = 1;
  double took = round(times);
  std::array<double, 5> rounds{};
  while (took < seconds / static_cast<double>(rounds.size()) / 2) {
    times *= 2;
    took = round(times);
  }
  for (auto& one : rounds) one = round(times) / static_cast<double>(times);
  std::nth_element(rounds.begin(), rounds.begin() + 2, rounds.end());
  return rounds[2];
}

}  // namespace lockstep::probe
