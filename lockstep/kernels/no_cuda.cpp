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

bool is_capturing(CUstream_st*) {
  return false;
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

void layer_norm_cuda(const LayerNorm&, CUstream_st*) {
  refuse();
}

void layer_norm_backward_cuda(const LayerNormBackward&, CUstream_st*) {
  refuse();
}

void gelu_cuda(const Gelu&, CUstream_st*) {
  refuse();
}

void gelu_backward_cuda(const GeluBackward&, CUstream_st*) {
  refuse();
}

void cross_entropy_cuda(const CrossEntropy&, CUstream_st*) {
  refuse();
}

void embedding_cuda(const Embedding&, CUstream_st*) {
  refuse();
}

void embedding_backward_cuda(const EmbeddingBackward&, CUstream_st*) {
  refuse();
}

void pack_columns_cuda(const PackColumns&, CUstream_st*) {
  refuse();
}

}  // namespace lockstep::kernels
