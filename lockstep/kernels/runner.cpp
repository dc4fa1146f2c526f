#include "lockstep/kernels/runner.h"

namespace lockstep::kernels {

Runner::Runner(const c10::Device& device) : device_(device) {}

CUstream_st* Runner::stream() const {
  return current_stream(device_.index());
}

bool Runner::is_capturing() const {
  return !device_.is_cpu() && kernels::is_capturing(stream());
}

void Runner::operator()(const LayerNorm& args) const {
  if (device_.is_cpu()) return layer_norm_cpu(args);
  layer_norm_cuda(args, stream());
}

void Runner::operator()(const LayerNormBackward& args) const {
  if (device_.is_cpu()) return layer_norm_backward_cpu(args);
  layer_norm_backward_cuda(args, stream());
}

void Runner::operator()(const Gelu& args) const {
  if (device_.is_cpu()) return gelu_cpu(args);
  gelu_cuda(args, stream());
}

void Runner::operator()(const GeluBackward& args) const {
  if (device_.is_cpu()) return gelu_backward_cpu(args);
  gelu_backward_cuda(args, stream());
}

void Runner::operator()(const CrossEntropy& args) const {
  if (device_.is_cpu()) return cross_entropy_cpu(args);
  cross_entropy_cuda(args, stream());
}

void Runner::operator()(const Embedding& args) const {
  if (device_.is_cpu()) return embedding_cpu(args);
  embedding_cuda(args, stream());
}

void Runner::operator()(const EmbeddingBackward& args) const {
  if (device_.is_cpu()) return embedding_backward_cpu(args);
  embedding_backward_cuda(args, stream());
}

void Runner::operator()(const PackColumns& args) const {
  if (device_.is_cpu()) return pack_columns_cpu(args);
  pack_columns_cuda(args, stream());
}

void Runner::operator()(const Gemm& args, Gemms* gemms) const {
  if (device_.is_cpu()) return gemm_cpu(args);
  gemms->run(args, stream());
}

}  // namespace lockstep::kernels
