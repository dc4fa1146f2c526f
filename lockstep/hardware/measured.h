#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::hardware {

// What `lockstep hardware bench` has measured: rates that no driver tells and that the
// planner prefers to those of a data sheet. Bytes and operations per second; what was
// not measured has no value.

struct MeasuredGpu {
  int index = 0;  // Gpu::index
  std::string uuid;
  std::optional<double> copy;       // within its memory, bytes read and written
  std::optional<double> from_host;  // out of pinned memory
  std::optional<double> to_host;
  std::optional<double> bf16_flops;  // of a large product of matrices
  std::optional<double> fp32_flops;
};

struct MeasuredPair {
  int first = 0;  // Gpu::index
  int second = 0;
  std::optional<double> copy;  // bytes sent from first to second
  std::string problem;         // "" when what arrived was what was sent, in time
};

// An all-reduce over `ranks` ranks.
struct MeasuredCollective {
  std::string backend;  // "nccl", "gloo", "shm"
  int ranks = 0;
  std::int64_t bytes = 0;
  double seconds = 0;  // the slowest rank's, the median of several
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
