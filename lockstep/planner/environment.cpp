// Variables of LibTorch and NCCL that a plan sets for its ranks.
#include <algorithm>

#include "lockstep/planner/detail/resolver.h"

namespace lockstep::planner::detail {
namespace {

using hardware::Machine;

// Returns a pair of GPUs between which a copy was lost or late.
std::string broken_pair(const Machine& machine) {
  if (!machine.measured) return "";
  for (const auto& pair : machine.measured->pairs) {
    if (!pair.problem.empty()) {
      return str("GPU ", pair.first, " to GPU ", pair.second, ": ", pair.problem);
    }
  }
  return "";
}

// Returns whether verbs exist: RoCE has them over Ethernet, InfiniBand by itself.
bool has_infiniband(const Machine& machine) {
  return !machine.rdma_devices.empty() ||
         std::any_of(machine.network.begin(), machine.network.end(),
                     [](const auto& one) { return one.kind == "infiniband"; });
}

}  // namespace

std::vector<Variable> variables_for(const config::Config& config,
                                    const Machine& machine,
                                    const std::vector<std::string>& set) {
  std::vector<Variable> variables;
  const auto is_set = [&](std::string_view name) {
    return std::find(set.begin(), set.end(), name) != set.end();
  };
  const auto add = [&](const std::string& name, const std::string& value,
                       const std::string& because) {
    if (!is_set(name)) variables.push_back({name, value, because});
  };
  const int ranks = config.parallel.ranks.value();
  add("OMP_NUM_THREADS", str(config.parallel.threads.value()), "parallel.threads");
  if (config.parallel.device != config::Device::cuda) return variables;
  // This is the older name of the same variable, which LibTorch 2.11 still reads.
  if (!is_set("PYTORCH_CUDA_ALLOC_CONF")) {
    add("PYTORCH_ALLOC_CONF", "expandable_segments:True",
        "less allocator fragmentation");
  }
  if (ranks == 1) return variables;
  if (const auto broken = broken_pair(machine); !broken.empty()) {
    add("NCCL_P2P_DISABLE", "1", broken);
  }
  if (!machine.network.empty() && !has_infiniband(machine)) {
    add("NCCL_IB_DISABLE", "1", "no InfiniBand device");
  }
  return variables;
}

}  // namespace lockstep::planner::detail
