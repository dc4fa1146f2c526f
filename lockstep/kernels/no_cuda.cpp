// What a build without device code links instead of the .cu files.
#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"

namespace lockstep::kernels {

bool cuda_available() noexcept {
  return false;
}

CUstream_st* current_stream(int) {
  throw Error(Fault::internal, "kernels: this build has no device code");
}

void normalize_cuda(const Normalize&, CUstream_st*) {
  throw Error(Fault::internal, "kernels: this build has no device code");
}

}  // namespace lockstep::kernels
