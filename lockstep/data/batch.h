#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/SmallVector.h>
#include <torch/torch.h>

#include "lockstep/data/named.h"

namespace lockstep::data {

// The position of a run in its data. Two integers, so that a resume is exact at any
// number of ranks.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t consumed = 0;  // samples of this epoch

  auto operator<=>(const Position&) const = default;
};

template <typename Tensor>
using TensorPointers = c10::SmallVector<Tensor*, 8>;

// This rank's share of a global batch. The tensors belong to the loader and hold these
// values until the next call of next().
struct Batch {
  Position begin;                 // of the first sample of the global batch
  std::int64_t global_size = 0;   // smaller than asked for only at the end of an epoch
  std::int64_t first = 0;         // the offset of the share in the global batch
  std::int64_t size = 0;          // of the share; may be 0
  std::int64_t largest_size = 0;  // of the shares of all ranks
  torch::Tensor inputs;           // (size, ...) in the data set's dtype
  // (size, ...) in the data set's dtype; where samples are mixed (size, classes)
  // float32: the share of each class.
  torch::Tensor targets;
  bool ends_epoch = false;
  std::vector<NamedTensor> fields = {};  // the other tensors of the samples

  // Returns a tensor by name, the two above as "input" and "target". Throws
  // Fault::config, with the names there are, if there is none of this name.
  const torch::Tensor& at(std::string_view name) const;

  // Returns all that are there, in a fixed order: a feed leaves out what nobody looks
  // at, the two above, too.
  TensorPointers<torch::Tensor> tensors();
  TensorPointers<const torch::Tensor> tensors() const;
};

}  // namespace lockstep::data
