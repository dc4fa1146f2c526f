#include "lockstep/planner/rates.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/str.h"
#include "lockstep/config/comm.h"

namespace lockstep::planner {
namespace {

using config::Precision;
using hardware::Gpu;
using hardware::Machine;

// The share of a rate that a training step reaches: of a sheet's, which no product
// reaches, and of one that was measured with a large product, unlike some of a
// step's.
constexpr double kOfSheet = 0.55;
constexpr double kOfMeasured = 0.75;
constexpr double kOfCpu = 0.35;
constexpr double kOfMemory = 0.8;

bool is_half(Precision precision) {
  return precision == Precision::bf16 || precision == Precision::fp16 ||
         config::has_half_parameters(precision);
}

double at_precision(const SheetRates& sheet, Precision precision) {
  if (is_half(precision)) return sheet.half > 0 ? sheet.half : sheet.fp32;
  if (precision == Precision::tf32) return sheet.tf32 > 0 ? sheet.tf32 : sheet.fp32;
  // Most GPUs reach a 64th of fp32's; those made for fp64 reach a half.
  if (precision == Precision::fp64) return sheet.fp32 / 64;
  return sheet.fp32;
}

// The operations of a multiprocessor in a cycle, by the architecture.
struct PerCycle {
  double half, fp32;
};

PerCycle per_cycle(const Gpu& gpu) {
  const int version = 10 * gpu.compute_major + gpu.compute_minor;
  if (version >= 120) return {512, 256};
  if (version >= 100) return {8192, 256};
  if (version >= 90) return {4096, 256};
  if (version > 80) return {512, 256};
  if (version == 80) return {2048, 128};
  if (version >= 70) return {1024, 128};
  return {256, 256};
}

DeviceRates estimated(const Gpu& gpu, Precision precision) {
  constexpr int kUsualUnits = 40;
  constexpr int kUsualClock = 1500;
  constexpr double kUsualMemory = 300e9;
  const auto known = [](const std::optional<int>& value, int usual) {
    return value.value_or(0) > 0 ? *value : usual;
  };
  const auto units = known(gpu.multiprocessors, kUsualUnits);
  const auto clock = known(gpu.max_sm_clock_mhz, kUsualClock);
  const auto cycle = per_cycle(gpu);
  const double cycles = units * clock * 1e6;
  const SheetRates sheet{"", cycle.half * cycles, cycle.half * cycles / 2,
                         cycle.fp32 * cycles};
  DeviceRates rates{.flops = at_precision(sheet, precision),
                    .memory = kUsualMemory * kOfMemory,
                    .efficiency = kOfSheet};
  rates.source = str("estimated: ", units, " multiprocessors x ", clock, " MHz");
  if (known(gpu.memory_bus_bits, 0) > 0 && known(gpu.max_memory_clock_mhz, 0) > 0) {
    rates.memory = kOfMemory * *gpu.memory_bus_bits / 8.0 * 2e6 *
                   *gpu.max_memory_clock_mhz;  // twice a cycle
  }
  return rates;
}

const hardware::MeasuredGpu* measured_gpu(const Machine& machine, const Gpu& gpu) {
  if (!machine.measured) return nullptr;
  for (const auto& one : machine.measured->gpus) {
    if (!one.uuid.empty() ? one.uuid == gpu.uuid : one.index == gpu.index) return &one;
  }
  return nullptr;
}

double lanes_of(const Machine& machine) {
  double lanes = 4;
  for (const auto& extension : machine.cpu_extensions) {
    if (extension.starts_with("avx512")) return 16;
    if (extension == "avx2") lanes = 8;
  }
  return lanes;
}

// Returns the rate of one direction of a link, as such links really move bytes.
double pcie_bytes(const Gpu& gpu) {
  constexpr int kUsualGeneration = 4;
  constexpr int kUsualWidth = 16;
  const int generation = gpu.max_pcie_generation.value_or(kUsualGeneration);
  const int width = gpu.max_pcie_width.value_or(kUsualWidth);
  return 0.8e9 * std::pow(2, generation - 3) * width;  // 0.985e9 a lane, less headers
}

enum class Transport { gpu, memory, gloo };

// Returns the bandwidth that an all_reduce showed, with an assumed latency.
std::optional<LinkRates> measured_link(const Machine& machine, int ranks,
                                       Transport over) {
  if (!machine.measured) return std::nullopt;
  const bool cuda = over == Transport::gpu;
  const hardware::MeasuredCollective* best = nullptr;
  for (const auto& one : machine.measured->collectives) {
    const bool fits =
        one.is_of_gpus() == cuda && one.ranks > 1 &&
        (over != Transport::gloo || one.backend == name_of(config::CommBackend::gloo));
    if (!fits || one.seconds <= 0 || one.bytes <= 0) continue;
    const auto far = [&](const auto& c) { return std::abs(c.ranks - ranks); };
    const bool nearer = best == nullptr || far(one) < far(*best) ||
                        (far(one) == far(*best) && one.bytes > best->bytes);
    if (nearer) best = &one;
  }
  if (best == nullptr) return std::nullopt;
  const double n = best->ranks;
  return LinkRates{2 * (n - 1) / n * static_cast<double>(best->bytes) / best->seconds,
                   cuda ? 10e-6 : 30e-6,
                   str(best->backend, " as measured with ", best->ranks, " ranks")};
}

}  // namespace

DeviceRates gpu_rates(const Machine& machine, std::size_t index, Precision precision) {
  const auto& gpu = machine.gpus[index];
  auto rates = estimated(gpu, precision);
  if (const auto sheet = find_sheet(gpu.name)) {
    rates = {at_precision(*sheet, precision), kOfMemory * sheet->memory, kOfSheet,
             "data sheet"};
  }
  const auto* measured = measured_gpu(machine, gpu);
  if (measured == nullptr) return rates;
  const auto flops = is_half(precision) ? measured->bf16_flops : measured->fp32_flops;
  const bool same = is_half(precision) || precision == Precision::fp32;
  if (flops.value_or(0) > 0 && same) {
    rates.flops = *flops;
    rates.efficiency = kOfMeasured;
    rates.source = "measured " + machine.measured->date;
  }
  if (measured->copy.value_or(0) > 0) rates.memory = *measured->copy;
  return rates;
}

DeviceRates cpu_rates(const Machine& machine, double used_cores) {
  constexpr double kUsualClock = 2500;
  constexpr double kPerLane = 4;  // two units that multiply and add
  const double cores = std::max(1, machine.physical_cores);
  const double share = std::min(1.0, used_cores / cores);
  const double clock = machine.max_cpu_mhz.value_or(kUsualClock);
  const double lanes = lanes_of(machine);
  DeviceRates rates{.flops = share * cores * clock * 1e6 * lanes * kPerLane,
                    .memory = std::min(cores, 8.0 * machine.sockets) * 10e9 * share,
                    .efficiency = kOfCpu};
  rates.source = str("estimated: ", cores * share, " cores x ", clock, " MHz x ", lanes,
                     " numbers");
  if (!machine.measured) return rates;
  if (const auto flops = machine.measured->cpu_flops; flops.value_or(0) > 0) {
    rates.flops = share * *flops;
    rates.efficiency = kOfMeasured;
    rates.source = "measured " + machine.measured->date;
  }
  const auto copy = machine.measured->host_copy.value_or(0);
  if (copy > 0) rates.memory = share * copy;
  return rates;
}

LinkRates gpu_link(const Machine& machine, int ranks) {
  if (auto measured = measured_link(machine, ranks, Transport::gpu)) return *measured;
  constexpr double kNvLink = 20e9;       // of 25e9 a link and direction
  constexpr double kNvLinkFive = 40e9;   // of 50e9
  constexpr double kThroughHost = 0.45;  // written to the host's memory and read again
  constexpr double kLatency = 10e-6;
  constexpr double kNetwork = 20e9;  // of 25e9
  constexpr double kNetworkLatency = 20e-6;
  const auto count = std::min<std::size_t>(ranks, machine.gpus.size());
  LinkRates slowest{1e18, kLatency, "no link"};
  const auto take = [&](const LinkRates& link) {
    if (link.bytes < slowest.bytes) slowest = link;
  };
  for (const auto& pair : machine.gpu_pairs) {
    const auto last = static_cast<std::size_t>(std::max(pair.first, pair.second));
    if (last >= count) continue;
    const auto& gpu = machine.gpus[last];
    if (pair.nvlinks > 0) {
      const double one = gpu.compute_major >= 10 ? kNvLinkFive : kNvLink;
      take({one * pair.nvlinks, kLatency, str(pair.nvlinks, " NVLinks")});
      continue;
    }
    if (pair.path == "network") {
      take({kNetwork, kNetworkLatency, "network, 200 Gbit/s a GPU assumed"});
      continue;
    }
    const bool direct = pair.peer_access.value_or(false);
    take({pcie_bytes(gpu) * (direct ? 1 : kThroughHost), kLatency,
          str("PCIe ", gpu.max_pcie_generation.value_or(4), " x",
              gpu.max_pcie_width.value_or(16), direct ? "" : " through the host")});
  }
  if (slowest.bytes < 1e18) return slowest;
  if (machine.gpus.empty()) return {1e9, kLatency, "assumed"};
  return {pcie_bytes(machine.gpus[0]) * kThroughHost, kLatency, "PCIe, assumed"};
}

LinkRates cpu_link(const Machine& machine, int ranks, bool shares_memory) {
  const auto over = shares_memory ? Transport::memory : Transport::gloo;
  if (auto measured = measured_link(machine, ranks, over)) return *measured;
  // Ranks of one host read each other's gradients in shared memory; gloo took 0.8 ms
  // for a MiB between two of them.
  return shares_memory ? LinkRates{4e9, 30e-6, "shared memory, assumed"}
                       : LinkRates{1.3e9, 96e-6, "gloo, assumed"};
}

LinkRates host_link(const Machine& machine, std::size_t index) {
  const auto& gpu = machine.gpus[index];
  const auto* measured = measured_gpu(machine, gpu);
  if (measured != nullptr && measured->to_host.value_or(0) > 0) {
    return {*measured->to_host, 10e-6, "measured " + machine.measured->date};
  }
  return {pcie_bytes(gpu), 10e-6, "PCIe"};
}

}  // namespace lockstep::planner
