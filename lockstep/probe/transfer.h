#pragma once

#include <functional>
#include <string>

#include <torch/torch.h>

#include "lockstep/hardware/measured.h"
#include "lockstep/probe/timing.h"

namespace lockstep::probe {

// For tests: called with what has arrived, before it is compared.
using Damage = std::function<void(const torch::Tensor&)>;

// Sends patterns of several lengths from one device to the other and back and compares
// every word; "" if all arrived as they were sent. Some machines (IOMMU, PCIe ACS) lose
// data between GPUs, or hang: whoever calls this sets a time limit around it.
std::string check_transfer(const torch::Device& from, const torch::Device& to,
                           const Damage& damage = {});

// The same between two GPUs, which may be one, and how fast copies are.
hardware::MeasuredPair measure_pair(int first, int second, const Effort& effort);

}  // namespace lockstep::probe
