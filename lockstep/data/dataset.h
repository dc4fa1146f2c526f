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

// A tensor of a sample: an input, a target, a mask, a second target.
struct FieldSpec {
  std::string name;
  std::vector<std::int64_t> shape;  // without the batch
  torch::Dtype dtype = torch::kFloat32;
  std::int64_t num_classes = 0;  // whole numbers are 0 ... num_classes - 1; 0: any
  // Model and loss see bytes and floats as scale * x + shift, in float32; bytes stay
  // bytes until they are on the device, where they take a quarter of the room.
  Affine scaling = {};
  std::vector<Affine> channels = {};  // instead, where channels differ
  std::int64_t axis = 0;              // of `shape`: along which the channels lie
  // True if the first dimension is as long as each sample says, at most shape[0]. A
  // batch is filled up with `padding` to the longest of its samples and has a tensor of
  // bool, "<name>_mask" (B, length), that is true where a sample is.
  bool varies = false;
  double padding = 0;

  std::int64_t num_elements() const noexcept;
  std::int64_t num_bytes() const noexcept;
  bool is_scaled() const noexcept;  // model and loss see other values than are stored
};

// The layout of a sample. Most have an "input" and a "target", which are described
// here; `fields` has the others.
struct SampleSpec {
  std::vector<std::int64_t> shape;     // of the input, without the batch: (C, H, W)
  torch::Dtype dtype = torch::kUInt8;  // of the input as it is stored
  std::int64_t num_classes = 0;        // targets are 0 ... num_classes - 1; 0: any
  std::vector<std::string> class_names = {};  // in their order, where they have names
  // The model sees the input as FieldSpec says.
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

  // Returns all tensors alike, in the order of a SampleBuffer: "input", "target", then
  // `fields`.
  std::vector<FieldSpec> tensors() const;
};

// Places in SampleSpec::tensors().
inline constexpr std::size_t kInput = 0;
inline constexpr std::size_t kTarget = 1;
inline constexpr std::size_t kFirstField = 2;

// The wanted sample, and all that randomness may depend on: the same visit gives the
// same sample at any number of workers and ranks.
struct Visit {
  std::int64_t index = 0;  // in [0, size())
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  // Tells the visits of an epoch apart: the index, or the place in the epoch where a
  // sample may come more than once.
  std::int64_t draw = 0;
};

// The destination of a sample: memory of a batch.
struct SampleBuffer {
  std::span<std::byte> input;
  std::span<std::int64_t> target;  // num_targets() of them; empty if they are no int64
  std::span<const std::span<std::byte>> fields;  // in the order of spec().fields
  std::span<std::byte> target_bytes = {};        // the target, whatever its type is
  // The lengths of tensors whose length varies, in the order of spec().tensors(). They
  // start at the longest.
  std::span<std::int64_t> lengths = {};
};

// Labelled samples that can be read in any order. A user's class gives its size and
// spec, and implements read(), or read_sample() if there is more than an input and a
// class.
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

  // Reads the whole sample. Unless overridden: read() for the input and the target.
  virtual void read_sample(const Visit& visit, const SampleBuffer& room) const;

  // Returns the class of a sample. Unless overridden, the sample is read for it.
  virtual std::int64_t class_of(std::int64_t index) const;

  // Returns the length of a sample's input, where it varies. Unless overridden, the
  // sample is read for it.
  virtual std::int64_t length_of(std::int64_t index) const;
};

}  // namespace lockstep::data
