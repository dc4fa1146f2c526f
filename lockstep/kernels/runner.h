#pragma once

#include <memory>

#include <c10/core/Device.h>

#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/gemm.h"

namespace lockstep::kernels {

// Runs kernels where their memory is: on a CPU at once, on a GPU on the stream that is
// current when they are called.
class Runner {
 public:
  explicit Runner(const c10::Device& device);

  const c10::Device& device() const noexcept { return device_; }
  // Returns whether launches become part of a CUDA graph.
  bool is_capturing() const;
  void operator()(const LayerNorm& args) const;
  void operator()(const LayerNormBackward& args) const;
  void operator()(const Gelu& args) const;
  void operator()(const GeluBackward& args) const;
  void operator()(const CrossEntropy& args) const;
  void operator()(const Embedding& args) const;
  void operator()(const EmbeddingBackward& args) const;
  void operator()(const PackColumns& args) const;
  // `gemms` is of this device; null on a CPU.
  void operator()(const Gemm& args, Gemms* gemms) const;

 private:
  CUstream_st* stream() const;

  c10::Device device_;
};

// By LibTorch's operators, on the host.
void gemm_cpu(const Gemm& args);

}  // namespace lockstep::kernels
