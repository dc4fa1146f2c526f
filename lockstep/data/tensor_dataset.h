#pragma once

#include <memory>
#include <vector>

#include <torch/torch.h>

#include "lockstep/data/dataset.h"
#include "lockstep/data/named.h"

namespace lockstep::data {

// What tensors do not say of themselves.
struct TensorOptions {
  std::int64_t num_classes = 0;  // 0: the largest target plus one
  Affine scaling = {};           // of the input (FieldSpec)
};

// Makes a data set of samples in memory: row i of each tensor is sample i's. "input"
// and "target" are such, others are fields. If targets are whole numbers from 0 on, the
// largest plus one is the number of classes. Throws Fault::config if rows are missing.
//
// The tensors are on the host, and must not change any more.
std::unique_ptr<Dataset> from_tensors(const Named& tensors,
                                      const TensorOptions& options = {});

}  // namespace lockstep::data
