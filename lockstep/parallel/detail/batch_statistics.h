#pragma once

#include <torch/torch.h>

// The arithmetic of BatchNorm over ranks, without the ranks. Inputs are (N, C, ...),
// contiguous or channels-last; N may be 0. Each rank sends the others one flat tensor,
// and gets theirs in the order of the ranks.
//
// A GPU has operations for these parts; a CPU has them for whole batches, from which
// the parts are made.
namespace lockstep::parallel::detail {

// The statistics of the values of each channel, over all ranks.
struct Statistics {
  torch::Tensor mean;    // (C)
  torch::Tensor spread;  // (C); CPU: the variance; CUDA: 1 / sqrt(variance + eps)
  torch::Tensor counts;  // (ranks); CPU: double; CUDA: int32
  double eps = 0;        // added to the variance
};

// In these an undefined tensor means that there is none.
struct Affine {
  torch::Tensor weight, bias;
};
struct Running {
  torch::Tensor mean, var;
  double momentum = 0;
};
struct BatchNormOptions {
  Running running;
  double eps = 0;
};

// Returns float for half precision, else the input's dtype.
torch::Dtype statistics_dtype(const torch::Tensor& input);

// Returns mean, spread and count of this rank's values: 2C + 1 elements.
torch::Tensor local_statistics(const torch::Tensor& input, double eps);

// Combines those of all ranks, (ranks, 2C + 1), to the same bits on every rank, and
// updates the running statistics. Throws Fault::config if all ranks together have one
// value a channel or none.
Statistics combined_statistics(const torch::Tensor& input, const torch::Tensor& all,
                               const BatchNormOptions& options);

torch::Tensor normalised(const torch::Tensor& input, const Affine& affine,
                         const Statistics& statistics);

// The sums over this rank's values of the output's gradient, and of that times the
// input's distance from the mean: 2C elements. The second of them is the weight's
// gradient, the first the bias's.
struct GradientSums {
  torch::Tensor for_input;  // (2C), to be summed over the ranks
  torch::Tensor weight, bias;
};
GradientSums gradient_sums(const torch::Tensor& gradient, const torch::Tensor& input,
                           const Statistics& statistics);

// What the gradient of the input is computed from, beside the statistics.
struct BackwardTensors {
  torch::Tensor gradient;  // of the output
  torch::Tensor input, weight;
  torch::Tensor sums;  // for_input of all ranks
};
torch::Tensor input_gradient(const BackwardTensors& tensors,
                             const Statistics& statistics);

}  // namespace lockstep::parallel::detail
