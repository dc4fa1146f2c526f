// One program a target of tests/<module>/support/fuzz_targets.h.
#include <cstddef>

#include LOCKSTEP_FUZZ_TARGETS

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  lockstep::fuzz::LOCKSTEP_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
