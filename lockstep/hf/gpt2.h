#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// GPT-2 as Hugging Face's transformers keeps it: a folder of config.json and weights.
namespace lockstep::hf {

using Path = std::filesystem::path;

inline constexpr std::string_view kConfigName = "config.json";

// What config.json says of a model that our gpt can compute.
struct Gpt2 {
  std::int64_t vocabulary = 0, context = 0, hidden = 0, layers = 0, heads = 0;
  double embedding_dropout = 0, attention_dropout = 0, residual_dropout = 0;
  bool is_tied = true;  // the head is the embedding once more
  std::optional<std::int64_t> first_token, last_token;  // of a text
};

// Reads the text of config.json. Throws Fault::config, beginning with `place`, for a
// model that is no GPT-2, or one that computes what our gpt does not.
Gpt2 gpt2_from_json(std::string_view text, const std::string& place);

// Reads config.json of a folder; Fault::config if it is not there.
Gpt2 read_gpt2(const Path& folder);

// Returns the tokens that end a text, as transformers' generate() takes them: those of
// generation_config.json, if it names any, else that of config.json.
std::vector<std::int64_t> end_tokens(const Path& folder);

// Returns the text of config.json. `dtype` is that of the weights in safetensors:
// "F32".
std::string config_json(const Gpt2& model, std::string_view dtype);

// Returns the text of generation_config.json.
std::string generation_config_json(const Gpt2& model);

}  // namespace lockstep::hf
