// The stubs that a build without device code links instead of the .cu files.
#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"

namespace lockstep::kernels {
namespace {

[[noreturn]] void refuse() {
  throw Error(Fault::internal, "kernels: this build has no device code");
}

}  // namespace

bool cuda_available() noexcept {
  return false;
}

CUstream_st* current_stream(int) {
  refuse();
}

void put_words_cuda(const Words&, CUstream_st*) {
  refuse();
}

void normalize_cuda(const Normalize&, CUstream_st*) {
  refuse();
}

void add_relu_cuda(const AddRelu&, CUstream_st*) {
  refuse();
}

void dropout_cuda(const Dropout&, CUstream_st*) {
  refuse();
}

void update_cuda(const UpdateArgs&, CUstream_st*) {
  refuse();
}

void squared_norm_cuda(const SquaredNormArgs&, CUstream_st*) {
  refuse();
}

void clip_factor_cuda(const ClipFactor&, CUstream_st*) {
  refuse();
}

}  // namespace lockstep::kernels
