#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace lockstep::parallel {

// A trainable parameter, under its name in the module.
struct Parameter {
  std::string name;
  torch::Tensor tensor;
  // The unit of parameters that are needed together: no bucket holds parameters of two
  // units, so that one unit can be gathered and freed without another.
  std::size_t unit = 0;
};

// Returns the trainable parameters of a module, each once: a tied one has the first of
// its names. Throws Fault::config for one whose elements overlap in memory.
std::vector<Parameter> trainable_parameters(const torch::nn::Module& module);

// Returns the others, each once, that can lie in a flat buffer.
std::vector<Parameter> frozen_parameters(const torch::nn::Module& module);

// The place of a parameter in the flat buffer of its group. Behind its elements is one
// more, which counts in a gradient buffer the ranks that have not used it.
struct ParameterSlot {
  std::size_t parameter = 0;  // index in the list
  std::int64_t offset = 0;    // elements; a multiple of 64 bytes
  std::int64_t numel = 0;
  std::int64_t counter() const noexcept { return offset + numel; }
};

// A piece of a flat buffer that is exchanged in one collective.
struct Bucket {
  std::int64_t begin = 0, end = 0;            // elements
  std::size_t first_slot = 0, last_slot = 0;  // [first, last)
};

// The parameters of one dtype on one device.
struct Group {
  torch::Dtype dtype = torch::kFloat32;
  torch::Device device = torch::kCPU;
  std::int64_t numel = 0;  // of its flat buffers, padding included
  std::vector<ParameterSlot> slots;
  std::vector<Bucket> buckets;
};

struct LayoutOptions {
  // The first bucket is small, so that the first collective starts early.
  std::int64_t first_bucket_bytes = 1 << 20;
  std::int64_t bucket_bytes = 25 << 20;  // at most, but for a larger parameter
  // The last bucket travels when nothing is computed any more, so a small model has
  // smaller ones: so many, as long as they are no smaller than the first.
  std::int64_t num_buckets = 8;
  // Buckets can be cut into so many equal shards.
  std::int64_t shards = 1;
};

// Puts the parameters into flat buffers in the given order (that in which gradients
// become ready), one group for each dtype and device, and cuts these into buckets: a
// parameter is never cut, and a bucket ends with the one that fills it, or with its
// unit. With one shard and one unit the size of a group does not depend on the order.
std::vector<Group> plan_layout(const std::vector<Parameter>& parameters,
                               const std::vector<std::size_t>& order,
                               const LayoutOptions& options);

// Returns the order last to first, which is roughly that of backward.
std::vector<std::size_t> reversed_order(std::size_t parameters);

}  // namespace lockstep::parallel
