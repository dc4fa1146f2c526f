#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/hf/adapted.h"
#include "lockstep/hf/gpt2.h"
#include "lockstep/storage/reader.h"
#include "lockstep/storage/safetensors.h"

namespace lockstep::hf {

// The model of a checkpoint that is to become a folder of Hugging Face.
struct Export {
  const storage::Reader& reader;
  // The tensors of the checkpoint by the model's names for them: the weights, or their
  // averages.
  std::map<std::string, std::string> sources;
  const config::Config& config;  // of the run
  Path tokenizer;                // a folder with its files; empty: none are known
  // The weights with the adapters in them, if the checkpoint holds only these.
  const AdaptedWeights* adapted = nullptr;
};

struct Exported {
  std::vector<storage::SafetensorsEntry> tensors;
  std::vector<std::string> tokenizer_files;  // that were copied
};

// Writes config.json, generation_config.json, model.safetensors and what there is of a
// tokenizer into `folder`, which exists. Rows that fill up the vocabulary are left out.
// Throws Fault::config, before anything is written, for a checkpoint whose tensors are
// not those of a gpt.
Exported export_gpt2(const Export& job, const Path& folder);

// Copies the files of a tokenizer that are in a folder; returns their names.
std::vector<std::string> copy_tokenizer(const Path& from, const Path& to);

// Writes how a run has written chats into the files of a tokenizer, for transformers'
// apply_chat_template(). A tokenizer's own template stays where the recipe did not ask
// for another.
void write_chat_template(const config::TextData& text, const Path& folder);

// Returns data.chat_template of a folder that write_chat_template() has written, the
// default one if there is none; nothing for a template of others.
std::optional<std::string> read_chat_template(const Path& folder);

}  // namespace lockstep::hf
