#pragma once

#include <functional>
#include <string>

#include <torch/torch.h>

#include "lockstep/hardware/measured.h"
#include "lockstep/probe/timing.h"

namespace lockstep::probe {

// For tests: called with the received tensor, before it is compared.
using Damage = std::function<void(const torch::Tensor&)>;

// Sends patterns of several lengths from one device to the other and back and compares
// every word; returns "" if all arrived intact. Some machines (IOMMU, PCIe ACS) lose
// data between GPUs, or hang: the caller sets a time limit around it.
std::string check_transfer(const torch::Device& from, const torch::Device& to,
                           const Damage& damage = {});

// Checks and times copies between two GPUs, which may be one.
hardware::MeasuredPair measure_pair(int first, int second, const Effort& effort);

}  // namespace lockstep::probe
