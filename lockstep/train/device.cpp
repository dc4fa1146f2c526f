#include "lockstep/train/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"
#include "lockstep/base/instruction_sets.h"
#include "lockstep/memory/device_memory.h"

namespace lockstep::train {

torch::Device choose_device(const config::ParallelConfig& config, int local_rank) {
  if (config.device != config::Device::cuda) return torch::kCPU;
  if (!torch::cuda::is_available()) {
    throw Error(Fault::hardware,
                "parallel.device: requested cuda, but this LibTorch sees "
                "no GPU; `lockstep doctor` says why, parallel.device=cpu "
                "trains without one");
  }
  const auto gpus = static_cast<int>(torch::cuda::device_count());
  if (local_rank >= gpus) {
    throw Error(Fault::hardware, "parallel.ranks: rank ", local_rank,
                " of this machine has no GPU of its own: there are ", gpus,
                "; start at most ", gpus, " ranks here");
  }
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(local_rank)};
}

std::vector<torch::Device> choose_devices(const config::ParallelConfig& config) {
  std::vector<torch::Device> devices;
  const auto& ids = config.device_ids;
  for (int rank = 0; rank < config.ranks.value(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    devices.push_back(choose_device(config, ids.empty() ? rank : ids.at(at)));
  }
  return devices;
}

std::vector<int> gpu_numbers(const std::vector<torch::Device>& devices) {
  std::vector<int> numbers;
  for (const auto& device : devices) {
    if (!device.is_cpu()) numbers.push_back(device.index());
  }
  return numbers;
}

void choose_vector_code() {
  const auto x = torch::full({64}, 0.5);
  for (const auto& y : {x.tanh(), x.exp(), x.log(), x.erf(), x.sin(), x.sqrt()}) {
    LOCKSTEP_CHECK(y.numel() == 64);
  }
}

void make_current(const torch::Device& device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
}

precision::Policy set_up_process(const config::Config& config,
                                 const torch::Device& device) {
  leave_out_unusable_instructions();
  const precision::Policy policy{config.precision.mode, device};
  make_current(device);
  if (!device.is_cpu()) memory::limit_device_memory(device, config.memory.fraction);
  at::set_num_threads(config.parallel.threads.value());
  torch::manual_seed(config.run.seed);
  torch::autograd::AnomalyMode::set_enabled(config.train.anomaly);
  // Choosing convolution algorithms by timing them makes reruns differ.
  const bool same_bits = config.train.deterministic;
  at::globalContext().setBenchmarkCuDNN(!same_bits);
  at::globalContext().setDeterministicCuDNN(same_bits);
  at::globalContext().setDeterministicAlgorithms(same_bits, /*warn_only=*/true);
  precision::apply(policy);
  return policy;
}

}  // namespace lockstep::train
