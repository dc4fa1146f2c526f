#pragma once

#include <filesystem>
#include <functional>

#include <torch/torch.h>

#include "lockstep/config/load.h"
#include "lockstep/generate/decoder.h"

namespace lockstep::generate {

// A model that generates text, as it was found on disk.
struct ModelSource {
  GptWeights weights;  // with a vocabulary of 0 where rows may only fill it up
  // True if the tokenizer has as many tokens as the vocabulary; that of a model from
  // elsewhere may have fewer.
  bool is_exact = false;
  std::filesystem::path tokenizer;       // empty: not known
  config::TextData text;                 // how its run has written chats
  std::vector<std::int64_t> end_tokens;  // of a text, beside the tokenizer's
  bool knows_chats = true;               // false: its chat template is one of others
};

struct SourceOptions {
  std::filesystem::path path;  // a run, a checkpoint, or a folder of Hugging Face
  torch::Device device = torch::kCPU;
  torch::Dtype dtype = torch::kFloat32;
  // Reads a recipe: the config of a run.
  std::function<config::Loaded(const std::filesystem::path&)> load_config;
};

// Loads the weights: of a run its final ones, or those of a later checkpoint; adapters
// are added to the weights that they belong to. Throws Fault::config for what is none
// of the three, and for a model that is no gpt; Fault::io for damaged files.
ModelSource load_source(const SourceOptions& options);

}  // namespace lockstep::generate
