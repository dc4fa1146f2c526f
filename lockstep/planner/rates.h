#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/config/precision.h"
#include "lockstep/hardware/machine.h"

// The speed of the parts of a machine: as measured (`lockstep hardware bench`), else as
// their data sheets say, else estimated, and which of these it was.
namespace lockstep::planner {

// The rates of dense matrix products that sum in fp32, operations a second; 0: none.
struct SheetRates {
  std::string_view name;  // in lower case, found anywhere in the driver's name
  double half = 0;        // bf16, or fp16 where there is none
  double tf32 = 0;
  double fp32 = 0;
  double memory = 0;  // bytes a second
};

// Takes the driver's name ("NVIDIA A100-SXM4-80GB"); nothing if it is not listed.
std::optional<SheetRates> find_sheet(std::string_view gpu_name);

// The peak of one device.
struct DeviceRates {
  double flops = 0;   // a second, at the precision asked for
  double memory = 0;  // bytes a second
  // The share of `flops` that a training step reaches in its products.
  double efficiency = 1;
  std::string source;  // "data sheet", "measured 2026-11-15", "58 SMs x 2040 MHz"
};

DeviceRates gpu_rates(const hardware::Machine& machine, std::size_t index,
                      config::Precision precision);
// Returns the rates of so many of the machine's cores, or of a part of one.
DeviceRates cpu_rates(const hardware::Machine& machine, double used_cores);

// The link that ranks exchange tensors over.
struct LinkRates {
  double bytes = 0;    // a second, each rank to the next
  double latency = 0;  // seconds of a message
  std::string source;  // "18 NVLinks", "PCIe 4 x16 through the host"
};

// Returns the slowest link between the first `ranks` GPUs. A rank more than there are
// GPUs is as far away as the others.
LinkRates gpu_link(const hardware::Machine& machine, int ranks);
// Returns the link of CPU ranks: memory that they share, or gloo.
LinkRates cpu_link(const hardware::Machine& machine, int ranks, bool shares_memory);
// Returns the link between a GPU and the host.
LinkRates host_link(const hardware::Machine& machine, std::size_t index);

}  // namespace lockstep::planner
