#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::hardware {

// The results of `lockstep hardware bench`: rates that no driver reports and that the
// planner prefers to those of a data sheet. Bytes and operations per second; a rate
// that was not measured has no value.

struct MeasuredGpu {
  int index = 0;  // Gpu::index
  std::string uuid;
  std::optional<double> copy;       // within its memory, bytes read and written
  std::optional<double> from_host;  // out of pinned memory
  std::optional<double> to_host;
  std::optional<double> bf16_flops;  // for a large matrix product
  std::optional<double> fp32_flops;
};

struct MeasuredPair {
  int first = 0;  // Gpu::index
  int second = 0;
  std::optional<double> copy;  // bytes sent from first to second
  std::string problem;         // "" when the copy arrived intact and in time
};

// An all-reduce over `ranks` ranks.
struct MeasuredCollective {
  std::string backend;  // "nccl", "gloo", "shm"
  int ranks = 0;
  std::int64_t bytes = 0;
  double seconds = 0;  // the slowest rank's, the median of several

  bool is_of_gpus() const { return backend == "nccl"; }  // else of the host
};

struct Measured {
  std::string date;                 // "2026-11-15"
  std::optional<double> host_copy;  // all cores, bytes read and written
  std::optional<double> cpu_flops;  // fp32, all cores
  std::vector<MeasuredGpu> gpus;
  std::vector<MeasuredPair> pairs;
  std::vector<MeasuredCollective> collectives;
};

}  // namespace lockstep::hardware
