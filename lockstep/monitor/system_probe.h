#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/hardware/gpu_meter.h"

namespace lockstep::monitor {

// One number of the catalogue at one moment; `gpu` (Gpu::index) where it is one of a
// GPU.
struct Reading {
  std::string_view name;
  std::optional<int> gpu;
  double value = 0;
};

struct SystemSample {
  double time = 0;        // seconds since 1970
  std::int64_t step = 0;  // the last finished one
  std::vector<Reading> readings;
  std::vector<hardware::GpuStatus> gpus;
};

// Looks at GPUs, CPU, memory, disk and network. Unreadable values are left out.
//
// Threads: one at a time.
class SystemProbe {
 public:
  struct Options {
    hardware::Path run_directory;
    hardware::Path root = "/";
    const Clock& clock = Clock::system();
    // Looks at GPUs with these Gpu::index; without a list, at all.
    std::optional<std::vector<int>> gpus = std::nullopt;
  };
  explicit SystemProbe(const Options& options);

  // CPU times are those since the reading before, so the first has none. Counters that
  // are not asked for keep their last value.
  SystemSample read(hardware::Counters counters = hardware::Counters::all);

  const std::vector<hardware::Gpu>& gpus() const noexcept { return meter_.gpus(); }
  // Returns why there is no GPU, else "".
  const std::string& gpu_note() const noexcept { return meter_.note(); }

 private:
  void read_gpus(SystemSample& sample, hardware::Counters counters);
  void read_cpu(SystemSample& sample);
  void read_process(SystemSample& sample);
  void read_memory(SystemSample& sample) const;
  void read_disk(SystemSample& sample) const;
  void read_network(SystemSample& sample) const;

  const hardware::Path run_directory_;
  const hardware::Path root_;
  const Clock& clock_;
  hardware::GpuMeter meter_;
  std::vector<hardware::GpuStatus> counted_;      // the last with all counters
  std::optional<std::pair<double, double>> cpu_;  // busy, all
  std::optional<std::pair<double, SteadyTime>> process_seconds_;  // of CPU, when
};

}  // namespace lockstep::monitor
