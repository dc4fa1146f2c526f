#include "lockstep/service/slots.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/hardware/choose_gpus.h"

namespace lockstep::service {
namespace {

constexpr double kWhole = 1.0;
constexpr double kRounding = 1e-9;

bool has(const std::vector<int>& values, int value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// Returns the process that computes on a GPU and is none of ours; nullptr if there is
// none.
const hardware::GpuProcess* find_stranger(const hardware::Gpu& gpu,
                                          const PoolOptions& options, bool is_ours) {
  for (const auto& process : gpu.processes) {
    if (!is_ours || is_strange(process.pid, options.supervisors)) return &process;
  }
  return nullptr;
}

std::string problem_of(const hardware::Gpu& gpu, const PoolOptions& options,
                       bool is_ours) {
  const auto& queue = options.queue;
  const auto& status = gpu.status;
  if (status.temperature_celsius.value_or(0) > queue.max_gpu_celsius) {
    return str(*status.temperature_celsius,
               " C, more than queue.max_gpu_celsius=", queue.max_gpu_celsius,
               "; look at its cooling");
  }
  if (status.ecc_uncorrected.value_or(0) > 0) {
    return str(*status.ecc_uncorrected,
               " uncorrectable memory errors since the driver was loaded; reset it "
               "(nvidia-smi --gpu-reset)");
  }
  if (gpu.remapped_rows && gpu.remapped_rows->failed) {
    return "failing memory and no spare row; replace it";
  }
  if (gpu.remapped_rows && gpu.remapped_rows->pending) {
    return "a row of memory waits for being replaced; reset it (nvidia-smi "
           "--gpu-reset)";
  }
  if (!gpu.xid_errors.empty()) {
    return str("the driver reports Xid ", gpu.xid_errors.back().message,
               "; reset it (nvidia-smi --gpu-reset) and clear the kernel's log (dmesg "
               "--clear)");
  }
  if (const auto* process = find_stranger(gpu, options, is_ours)) {
    return str("process ", process->pid, process->name.empty() ? "" : " (",
               process->name, process->name.empty() ? "" : ")",
               " computes on it and is none of ours; wait for it");
  }
  return "";
}

std::map<int, double> taken_shares(std::span<const Lease> leases, bool of_gpus) {
  std::map<int, double> taken;
  for (const auto& lease : leases) {
    if (lease.is_gpu == of_gpus) taken[lease.unit] += lease.share;
  }
  return taken;
}

const GpuProblem* find_problem(const Pool& pool, int gpu) {
  const auto found = std::find_if(pool.problems.begin(), pool.problems.end(),
                                  [&](const GpuProblem& p) { return p.gpu == gpu; });
  return found == pool.problems.end() ? nullptr : &*found;
}

// A GPU, and how much of it others have.
struct UsedGpu {
  const hardware::Gpu& gpu;
  double taken = 0;
};

// Returns why this GPU does not do now, "" if it does.
std::string why_not(const Pool& pool, const UsedGpu& used, const Resources& wanted) {
  const auto& [gpu, taken] = used;
  if (!has(pool.gpus, gpu.index)) return str("GPU ", gpu.index, " is not for jobs");
  if (const auto* problem = find_problem(pool, gpu.index)) {
    return str("GPU ", gpu.index, ": ", problem->reason);
  }
  const bool shares = wanted.memory_fraction > 0;
  const double share = shares ? wanted.memory_fraction : kWhole;
  if (taken + share > kWhole + kRounding) return str("GPU ", gpu.index, " is taken");
  if (gpu.memory_total_bytes < wanted.min_memory_bytes) {
    return str("GPU ", gpu.index, " has ", units::format_bytes(gpu.memory_total_bytes));
  }
  return "";
}

Allocation allocate_gpus(const Pool& pool, std::span<const Lease> leases,
                         const Resources& wanted) {
  const auto taken = taken_shares(leases, true);
  Allocation result;
  auto free = pool.machine;
  free.gpus.clear();
  std::string last_reason = "there is no GPU";
  for (const auto& gpu : pool.machine.gpus) {
    if (!wanted.gpu_ids.empty() && !has(wanted.gpu_ids, gpu.index)) continue;
    const auto share = taken.find(gpu.index);
    const auto reason =
        why_not(pool, {gpu, share == taken.end() ? 0 : share->second}, wanted);
    if (reason.empty()) {
      free.gpus.push_back(gpu);
    } else {
      last_reason = reason;
    }
  }
  const auto choice = hardware::choose_gpus(
      free, {.min_memory_bytes = wanted.min_memory_bytes, .count = wanted.gpus});
  if (static_cast<int>(choice.chosen.size()) < wanted.gpus) {
    result.reason = str("waits for ", wanted.gpus, " GPUs, ", choice.chosen.size(),
                        " are free: ", last_reason);
    return result;
  }
  for (const int gpu : choice.chosen) {
    const double share = wanted.memory_fraction > 0 ? wanted.memory_fraction : kWhole;
    result.leases.push_back({.is_gpu = true, .unit = gpu, .share = share});
  }
  return result;
}

}  // namespace

bool is_strange(int pid, std::span<const int> supervisors) {
  if (supervisors.empty()) return false;  // it is not known who is ours
  constexpr int kMostGenerations = 64;
  constexpr std::int64_t kLargestStatus = 1 << 16;
  for (int i = 0; i < kMostGenerations && pid > 1; ++i) {
    if (std::find(supervisors.begin(), supervisors.end(), pid) != supervisors.end()) {
      return false;
    }
    try {
      const auto status = files::read(str("/proc/", pid, "/status"), kLargestStatus);
      const auto at = status.find("\nPPid:\t");
      if (at == std::string::npos) return false;
      const auto begin = at + std::string_view("\nPPid:\t").size();
      pid = static_cast<int>(
          text::to_integer(status.substr(begin, status.find('\n', begin) - begin))
              .value_or(0));
    } catch (const Error&) {
      return i > 0;  // it is not seen here, or its parent has ended just now
    }
  }
  return true;
}

Pool pool_of(PoolOptions options) {
  const auto& queue = options.queue;
  Pool pool{.machine = std::move(options.machine), .cores = std::move(options.cores)};
  const auto ours = taken_shares(options.leases, true);
  for (const auto& gpu : pool.machine.gpus) {
    if (!queue.use_gpus) break;
    if (!queue.gpu_ids.empty() && !has(queue.gpu_ids, gpu.index)) continue;
    pool.gpus.push_back(gpu.index);
    const auto problem = problem_of(gpu, options, ours.contains(gpu.index));
    if (!problem.empty()) pool.problems.push_back({gpu.index, problem});
  }
  if (!queue.cores.is_auto()) {
    const auto most = static_cast<std::size_t>(queue.cores.value());
    if (pool.cores.size() > most) pool.cores.resize(most);
  }
  return pool;
}

Allocation allocate(const Pool& pool, std::span<const Lease> leases,
                    const Resources& wanted) {
  if (pool.elsewhere) return {.leases = {{.unit = -1}}};
  Allocation result;
  if (wanted.gpus > 0) {
    result = allocate_gpus(pool, leases, wanted);
    if (!result) return result;
  }
  const auto taken = taken_shares(leases, false);
  for (const int core : pool.cores) {
    if (static_cast<int>(result.leases.size()) - wanted.gpus >= wanted.cores) break;
    if (!taken.contains(core)) result.leases.push_back({.is_gpu = false, .unit = core});
  }
  const auto got = static_cast<int>(result.leases.size()) - wanted.gpus;
  if (got < wanted.cores) {
    return {.leases = {},
            .reason = str("waits for ", wanted.cores, " cores, ", got, " are free")};
  }
  return result;
}

std::string never_fits(const Pool& pool, const Resources& wanted) {
  if (pool.elsewhere) return "";
  if (wanted.cores > static_cast<int>(pool.cores.size())) {
    return str("cores=", wanted.cores, ", and jobs share ", pool.cores.size());
  }
  int fit = 0;
  for (const auto& gpu : pool.machine.gpus) {
    const bool named = wanted.gpu_ids.empty() || has(wanted.gpu_ids, gpu.index);
    if (named && has(pool.gpus, gpu.index) &&
        gpu.memory_total_bytes >= wanted.min_memory_bytes) {
      ++fit;
    }
  }
  if (wanted.gpus <= fit) return "";
  if (pool.gpus.empty()) {
    return str("gpus=", wanted.gpus, ", and jobs share no GPU here (",
               pool.machine.gpu_note.empty() ? "queue.use_gpus, queue.gpu_ids"
                                             : pool.machine.gpu_note,
               "); request gpus=0 to train on CPUs");
  }
  return str("gpus=", wanted.gpus, ", and of the ", pool.gpus.size(),
             " that jobs share ", fit,
             " match (gpu_ids, min_memory_bytes); request fewer, or "
             "gpus=0 to train on CPUs");
}

}  // namespace lockstep::service
