#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/checkpoint/pieces.h"
#include "lockstep/storage/reader.h"

namespace lockstep::checkpoint {

// Tensors of which the two sides need not agree, by patterns (`*` is any text)
// separated by commas.
struct LoadRules {
  std::string allow_missing;        // the checkpoint need not have them
  std::string ignore;               // it may have them, and they are left out
  std::int64_t pad_vocabulary = 1;  // weights need no rows that only fill up to it,
  std::int64_t vocabulary = 0;      // beyond those of so many tokens
};

// Throws Fault::config, with all names, unless the checkpoint has the expected tensors,
// of the same dtypes and shapes, and no others.
void check(const storage::Manifest& manifest, const std::vector<Expected>& expected,
           const LoadRules& rules);

// Fills the pieces with their part of the checkpoint; reads nothing else, and verifies
// the bytes it reads. REQUIRES: check().
void load(const storage::Reader& reader, const Pieces& pieces, const LoadRules& rules);

// The model that weights are loaded into, and how a tensor of it gets its value: it is
// copied, unless the caller knows better (one of which a rank has a shard).
struct LoadTarget {
  using Assign = std::function<void(const torch::Tensor& tensor, const torch::Tensor&)>;
  LoadTarget(torch::nn::Module& its_model,  // NOLINT(google-explicit-constructor)
             Assign its_assign = {})
      : model(its_model), assign(std::move(its_assign)) {}

  void set(const torch::Tensor& tensor, const torch::Tensor& value) const {
    if (assign) return assign(tensor, value);
    tensor.copy_(value);
  }

  torch::nn::Module& model;
  const Assign assign;
};

// Loads the weights of a safetensors file, or of a folder of Hugging Face, into a
// model, parameters and buffers by name. Throws Fault::config as check() does, but for
// floating-point numbers of another dtype: these are converted, with one line of the
// log if that rounds them.
void load_weights(const std::filesystem::path& path, const LoadTarget& target,
                  const LoadRules& rules);

}  // namespace lockstep::checkpoint
