#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lockstep/hardware/machine.h"

namespace lockstep::hardware {

// Selects whether slow counters are read, too: energy and pcie_replays take
// milliseconds where all the rest takes microseconds (4 ms and 0.2 ms of an H200).
enum class Counters { all, quick };

// Reads the state of this process's GPUs, again and again: the driver's library stays
// open between two readings.
//
// Threads: one at a time.
class GpuMeter {
 public:
  // Reads only the GPUs with these Gpu::index, if there is a list. Never fails: without
  // a driver, or with GPUs that are gone, there is nothing to read.
  explicit GpuMeter(const Path& root = "/",
                    const std::optional<std::vector<int>>& only = std::nullopt);
  ~GpuMeter();
  GpuMeter(const GpuMeter&) = delete;
  GpuMeter& operator=(const GpuMeter&) = delete;

  // Returns those of them that CUDA shows, in its order, as detect() describes them,
  // and the limits that alerts compare with.
  const std::vector<Gpu>& gpus() const noexcept;

  // Returns the reason why CUDA shows none at all, else "".
  const std::string& note() const noexcept;

  // Returns one status for each of gpus().
  std::vector<GpuStatus> read(Counters counters = Counters::all) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::hardware
