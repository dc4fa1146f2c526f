#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace lockstep::data {

// scale * x + shift
struct Affine {
  float scale = 1;
  float shift = 0;

  bool operator==(const Affine&) const = default;
};

// A tensor of a sample: an input, a target, a mask, the answer to another question.
struct FieldSpec {
  std::string name;
  std::vector<std::int64_t> shape;  // without the batch
  torch::Dtype dtype = torch::kFloat32;
  std::int64_t num_classes = 0;  // whole numbers are 0 ... num_classes - 1; 0: any
  // What model and loss see of bytes and floats is scale * x + shift, as float32; bytes
  // stay bytes until they are on the device, where they take a quarter of the room.
  Affine scaling = {};
  std::vector<Affine> channels = {};  // instead, where channels differ
  std::int64_t axis = 0;              // of `shape`: along which the channels lie
  // The first dimension is as long as each sample says, at most shape[0]. A batch is
  // filled up with `padding` to the longest of its samples and has a tensor of bool,
  // "<name>_mask" (B, length), that is true where a sample is.
  bool varies = false;
  double padding = 0;

  std::int64_t num_elements() const noexcept;
  std::int64_t num_bytes() const noexcept;
  bool is_scaled() const noexcept;  // what is seen differs from what is stored
};

// What one sample of a data set looks like. Most have an "input" and a "target", which
// are described here; what else there is, in `fields`.
struct SampleSpec {
  std::vector<std::int64_t> shape;     // of the input, without the batch: (C, H, W)
  torch::Dtype dtype = torch::kUInt8;  // of the input as it is stored
  std::int64_t num_classes = 0;        // targets are 0 ... num_classes - 1; 0: any
  // What the model sees of the input, as in FieldSpec.
  float scale = 1;
  float shift = 0;
  std::vector<Affine> channels = {};
  std::int64_t axis = 0;
  bool varies = false;  // the length of the input
  // {}: one number, a class for instance; (T): one for each token
  std::vector<std::int64_t> target_shape = {};
  torch::Dtype target_dtype = torch::kInt64;
  bool target_varies = false;  // the length of the target
  // Targets that are missing have this value, which is in no class.
  std::optional<std::int64_t> ignore_index = std::nullopt;
  std::vector<FieldSpec> fields = {};  // more tensors of a sample

  std::int64_t num_elements() const noexcept;
  std::int64_t num_bytes() const noexcept;
  std::int64_t num_targets() const noexcept;
  bool is_tokens() const noexcept;  // whole numbers but bytes: as the model gets them
  bool is_image() const noexcept;   // (C, H, W) of uint8 or float32

  // All of them alike, in the order of a Room: "input", "target", then `fields`.
  std::vector<FieldSpec> tensors() const;
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
  std::span<std::int64_t> target;  // num_targets() of them; empty if they are no int64
  std::span<const std::span<std::byte>> fields;  // in the order of spec().fields
  std::span<std::byte> target_bytes = {};        // the target, whatever its type is
  // By the order of spec().tensors(): how long those are whose length varies. They are
  // all of the longest before.
  std::span<std::int64_t> lengths = {};
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

  // The length of a sample's input, where it varies. Unless overridden, the sample is
  // read for it.
  virtual std::int64_t length_of(std::int64_t index) const;
};

}  // namespace lockstep::data
