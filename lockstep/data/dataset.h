#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <torch/torch.h>

namespace lockstep::data {

// What one sample of a data set looks like.
struct SampleSpec {
  std::vector<std::int64_t> shape;     // of the input, without the batch: (C, H, W)
  torch::Dtype dtype = torch::kUInt8;  // of the input as it is stored
  std::int64_t num_classes = 0;        // targets are 0 ... num_classes - 1
  // What the model sees is scale * input + shift; bytes stay bytes until they are on
  // the device, where they take a quarter of the room.
  float scale = 1;
  float shift = 0;

  std::int64_t num_elements() const noexcept;
  std::int64_t num_bytes() const noexcept;
};

// Labelled samples that can be read in any order.
//
// Threads: read() is called by several at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t size() const noexcept = 0;
  virtual const SampleSpec& spec() const noexcept = 0;

  // Writes sample `index` into `input`, which has spec().num_bytes() bytes, and returns
  // its target. `index` is in [0, size()).
  virtual std::int64_t read(std::int64_t index, std::span<std::byte> input) const = 0;
};

}  // namespace lockstep::data
