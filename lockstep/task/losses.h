#pragma once

#include <cstdint>
#include <optional>

#include <torch/torch.h>

#include "lockstep/config/task.h"

namespace lockstep::task {

// Losses are sums over the targets that count, in the dtype of the scores. Beside each
// stands the weight of these targets, from the targets alone, as float64: the sum
// divided by it is PyTorch's reduction 'mean'. A weight is undefined where every target
// counts as one.
//
// None of them waits for the device, so nothing is selected by a mask: values that do
// not count are replaced by zeros. A pass without any row has a sum of 0, with
// gradients.

// The targets that count, and their weights. Both are of the shape of the targets.
struct Counted {
  torch::Tensor mask = {};     // bool; undefined: all count
  torch::Tensor weights = {};  // undefined: 1

  bool all_alike() const { return !mask.defined() && !weights.defined(); }
};

// Returns the numbers, with 0 where `valid` is defined and false.
inline torch::Tensor or_zero(const torch::Tensor& each, const torch::Tensor& valid) {
  return valid.defined() ? each.masked_fill(valid.bitwise_not(), 0) : each;
}

struct CrossEntropyOptions {
  double label_smoothing = 0;
  double focal_gamma = 0;  // (1 - p)^gamma of the right class multiplies its loss
  torch::Tensor class_weights = {};               // (C); undefined: all alike
  std::optional<std::int64_t> ignore_index = {};  // of whole numbers
};

// `logits` is (N, C). `targets` is (N) int64, or (N, C): shares of classes, which are
// counted whatever the weights of classes are, as in PyTorch.
torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets,
                            const CrossEntropyOptions& options,
                            const Counted& counted = {});
torch::Tensor cross_entropy_weight(const torch::Tensor& targets,
                                   const CrossEntropyOptions& options,
                                   const Counted& counted = {});

// Returns the targets of cross_entropy() that count; undefined: all.
torch::Tensor valid_classes(const torch::Tensor& targets,
                            const std::optional<std::int64_t>& ignore_index,
                            const torch::Tensor& mask);

struct BinaryCrossEntropyOptions {
  double focal_gamma = 0;  // (1 - p)^gamma of what is right multiplies its loss
  torch::Tensor positive_weights = {};  // (labels); undefined: 1
  config::Uncertain uncertain = config::Uncertain::ignore;
};

// `targets` is of the shape of `logits`, (N, labels): 0 or 1, or a share between; -1 is
// an uncertain label; a NaN is a missing one.
torch::Tensor binary_cross_entropy(const torch::Tensor& logits,
                                   const torch::Tensor& targets,
                                   const BinaryCrossEntropyOptions& options,
                                   const Counted& counted = {});
torch::Tensor binary_cross_entropy_weight(const torch::Tensor& targets,
                                          const BinaryCrossEntropyOptions& options,
                                          const Counted& counted = {});

// The known labels. bool and uint8 can not mark one as missing, so that all are known
// without a look at them.
struct Labels {
  torch::Tensor values;  // 0 where it does not count
  torch::Tensor valid;   // undefined: all
};
Labels known_labels(const torch::Tensor& targets, config::Uncertain uncertain,
                    const torch::Tensor& mask = {});

struct RegressionLossOptions {
  config::Criterion kind = config::Criterion::mse;  // one of those of a regression
  double huber_delta = 1;
};

// `targets` is of the shape of `outputs`.
torch::Tensor regression_loss(const torch::Tensor& outputs,
                              const torch::Tensor& targets,
                              const RegressionLossOptions& options,
                              const Counted& counted = {});
torch::Tensor regression_weight(const Counted& counted);

}  // namespace lockstep::task
