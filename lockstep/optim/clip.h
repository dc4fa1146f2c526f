#pragma once

#include <optional>

#include <torch/torch.h>

#include "lockstep/kernels/workers.h"

namespace lockstep::optim {

// Computes the sum of squares of a flat buffer, in an order that does not depend on the
// number of threads, nor (with our own kernels) on the device. It is a double, so that
// it is finite exactly if all elements of a buffer of float32 or less are.
//
// Threads: one at a time. Stream: the current one; waits for nothing. Makes nothing
// after the constructor on a CPU.
class SquaredNorm {
 public:
  // Serves buffers like `flat`: float32, float64, bfloat16 or float16.
  explicit SquaredNorm(const torch::Tensor& flat);

  // Returns a float64 scalar on the buffer's device; overwritten by the next call. Sums
  // of several buffers, shards or ranks add up to the sum of all.
  const torch::Tensor& of(const torch::Tensor& flat);

 private:
  torch::Tensor workspace_, sum_;
  std::optional<kernels::Workers> workers_;  // of a CPU
};

// Turns a sum of squares into the norm and the factor that brings it down to `most`.
class NormClip {
 public:
  // `most` is optim.clip_norm; 0: only the norm is wanted.
  NormClip(double most, const torch::Device& device);

  // `squared` is over all parameters, shards and ranks, of gradients that are still to
  // be multiplied by gradient_scale.
  void compute(const torch::Tensor& squared, double gradient_scale);
  // Reads the scale on the gradients' device, at every replay of a graph.
  void compute(const torch::Tensor& squared, const double* scale_at);

  // Return float64 scalars; overwritten by the next compute().
  const torch::Tensor& norm() const noexcept { return norm_; }  // after scaling
  const torch::Tensor& factor() const noexcept {
    return factor_;
  }  // StepArguments::factor

 private:
  double most_;
  torch::Tensor both_, norm_, factor_;
};

}  // namespace lockstep::optim
