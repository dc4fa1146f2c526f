#pragma once

#include <filesystem>
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

// Loads the weights of a safetensors file, or of a folder of Hugging Face, into a
// model, parameters and buffers by name. Throws Fault::config as check() does, but for
// floating-point numbers of another dtype: these are converted, with one line of the
// log if that rounds them.
void load_weights(const std::filesystem::path& path, torch::nn::Module& model,
                  const LoadRules& rules);

}  // namespace lockstep::checkpoint
