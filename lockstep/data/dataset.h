#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace lockstep::data {

// A tensor of a sample beside its input and its target: a second input, a mask, the
// answer to another question.
struct FieldSpec {
  std::string name;
  std::vector<std::int64_t> shape;  // without the batch
  torch::Dtype dtype = torch::kFloat32;

  std::int64_t num_bytes() const noexcept;
};

// scale * x + shift
struct Affine {
  float scale = 1;
  float shift = 0;
};

// What one sample of a data set looks like.
struct SampleSpec {
  std::vector<std::int64_t> shape;     // of the input, without the batch: (C, H, W)
  torch::Dtype dtype = torch::kUInt8;  // of the input as it is stored
  std::int64_t num_classes = 0;        // targets are 0 ... num_classes - 1; 0: any
  // What the model sees is scale * input + shift; bytes stay bytes until they are on
  // the device, where they take a quarter of the room.
  float scale = 1;
  float shift = 0;
  std::vector<Affine> channels = {};  // instead of these two, where channels differ
  std::vector<std::int64_t> target_shape =
      {};                              // {}: one class; (T): one for each token
  std::vector<FieldSpec> fields = {};  // more tensors of a sample

  std::int64_t num_elements() const noexcept;
  std::int64_t num_bytes() const noexcept;
  std::int64_t num_targets() const noexcept;
  bool is_tokens() const noexcept;  // whole numbers but bytes: as the model gets them
  bool is_image() const noexcept;   // (C, H, W) of uint8 or float32
};

// Which sample is wanted, and all that chance may depend on: the same visit gives the
// same sample at any number of workers and ranks.
struct Visit {
  std::int64_t index = 0;  // in [0, size())
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  // Tells the visits of an epoch apart: the index, or the place in the epoch where a
  // sample may come more than once.
  std::int64_t draw = 0;
};

// Where a sample goes: memory of a batch.
struct Room {
  std::span<std::byte> input;
  std::span<std::int64_t> target;                // num_targets() of them
  std::span<const std::span<std::byte>> fields;  // in the order of spec().fields
};

// Labelled samples that can be read in any order. A class of one's own says its size
// and spec, and implements read(), or read_sample() if there is more than an input and
// a class.
//
// A sample that can not be had is an Error of Fault::io which names it: the loader
// stops with it, or takes another in its place (data.on_bad_sample).
//
// Threads: reading is done by several at once.
class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual std::int64_t size() const noexcept = 0;
  virtual const SampleSpec& spec() const noexcept = 0;

  // Writes sample `index` into `input`, which has spec().num_bytes() bytes, and returns
  // its target. `index` is in [0, size()).
  virtual std::int64_t read(std::int64_t index, std::span<std::byte> input) const;

  // The whole sample. Unless overridden: read() for the input and the target.
  virtual void read_sample(const Visit& visit, const Room& room) const;

  // The class of a sample. Unless overridden, the sample is read for it.
  virtual std::int64_t class_of(std::int64_t index) const;
};

}  // namespace lockstep::data
