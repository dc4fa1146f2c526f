#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/hardware/gpu_meter.h"
#include "lockstep/hardware/machine.h"

namespace lockstep::hardware {

// Samples the utilization of the GPUs from its construction to its end. NVML reports
// the share of the time in which a GPU had anything to do, over the last sixth of a
// second to second; not how much of the GPU that took.
class GpuUse {
 public:
  explicit GpuUse(const Path& root = "/",
                  std::chrono::milliseconds every = std::chrono::milliseconds(50));
  ~GpuUse();
  GpuUse(const GpuUse&) = delete;
  GpuUse& operator=(const GpuUse&) = delete;

  // Returns the mean over these GPUs (Gpu::uuid) and the samples between two points of
  // the steady clock, from 0 to 1; empty without samples.
  std::optional<double> mean(const std::vector<std::string>& uuids, SteadyTime begin,
                             SteadyTime end) const;

 private:
  struct Sample {
    SteadyTime time;
    std::map<std::string, double> busy;
  };
  void look();

  const GpuMeter meter_;  // used by the thread
  mutable std::mutex mutex_;
  std::vector<Sample> samples_;  // guarded by mutex_
  std::jthread thread_;          // last: it uses all of the above
};

}  // namespace lockstep::hardware
