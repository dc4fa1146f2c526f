#include "lockstep/comm/extremes.h"

#include <torch/torch.h>

namespace lockstep::comm {

Extremes gather_extremes(std::int64_t own, Communicator& cpu) {
  if (cpu.size() == 1) return {own, own};
  const auto mine = torch::full({1}, own, torch::kInt64);
  const auto all = torch::empty({cpu.size()}, torch::kInt64);
  cpu.all_gather(all, mine).wait();
  return {all.min().item<std::int64_t>(), all.max().item<std::int64_t>()};
}

}  // namespace lockstep::comm
