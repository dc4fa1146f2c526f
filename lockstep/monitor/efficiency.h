#pragma once

#include <optional>

#include "lockstep/base/files.h"

namespace lockstep::monitor {

// The model FLOPs utilization (MFU) of a run.
struct Efficiency {
  double flops_per_sample =
      0;                  // of the model, forward and backward, without recomputing
  double peak_flops = 0;  // a second, of all devices at the precision in use

  // Returns the share of the peak that is used: mfu_ratio.
  double of(double samples_per_second) const {
    return flops_per_sample * samples_per_second / peak_flops;
  }
};

// Reads {"efficiency": {"flops_per_sample": ..., "peak_flops": ...}} of plan.json.
// Returns nothing where the plan lacks one of them, or is missing: this never fails.
std::optional<Efficiency> read_efficiency(const files::Path& plan_json);

}  // namespace lockstep::monitor
