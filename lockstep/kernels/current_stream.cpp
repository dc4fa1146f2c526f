#include <c10/cuda/CUDAStream.h>

#include "lockstep/kernels/cuda.h"

namespace lockstep::kernels {

bool cuda_available() noexcept {
  return true;
}

CUstream_st* current_stream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device))
      .stream();
}

bool is_capturing(CUstream_st* stream) {
  auto status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

}  // namespace lockstep::kernels
