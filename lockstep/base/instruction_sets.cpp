#include "lockstep/base/instruction_sets.h"

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lockstep {
namespace {

#if defined(__x86_64__)
bool has_tiles_without_layout() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kTiles = 1U << 24;
  if ((d & kTiles) == 0) return false;
  constexpr unsigned kLayouts = 0x1D;
  return __get_cpuid_count(kLayouts, 0, &a, &b, &c, &d) == 0 || a == 0;
}
#else
bool has_tiles_without_layout() {
  return false;
}
#endif

}  // namespace

bool leave_out_unusable_instructions() {
  if (!has_tiles_without_layout()) return false;
  // The best set without tiles.
  ::setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16", /*overwrite=*/0);
  return true;
}

}  // namespace lockstep
