#include "lockstep/hardware/gpu_check.h"

#include <algorithm>

#include "lockstep/base/str.h"

namespace lockstep::hardware {

bool GpuCheck::passed() const {
  return std::all_of(steps.begin(), steps.end(),
                     [](const auto& step) { return step.problem.empty(); });
}

std::string GpuCheck::problem() const {
  std::string text;
  for (const auto& step : steps) {
    if (step.problem.empty()) continue;
    text += str(text.empty() ? "" : "; ", step.what, ": ", step.problem);
  }
  return text;
}

}  // namespace lockstep::hardware
