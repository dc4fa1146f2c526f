#include <cuda_runtime.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"

namespace lockstep::kernels {
namespace {

__global__ void put_words_kernel(Words words) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= words.count) return;
  const bool second = words.takes_second != nullptr && *words.takes_second != 0;
  words.out[i] = second ? words.second[i] : words.first[i];
}

}  // namespace

void put_words_cuda(const Words& words, CUstream_st* stream) {
  LOCKSTEP_CHECK(words.count >= 0 && words.count <= kMostWords, words.count);
  if (words.count == 0) return;
  put_words_kernel<<<1, kMostWords, 0, stream>>>(words);
  if (const auto status = cudaGetLastError(); status != cudaSuccess) {
    throw Error(Fault::hardware,
                "kernels: put_words did not start: ", cudaGetErrorString(status));
  }
}

}  // namespace lockstep::kernels
