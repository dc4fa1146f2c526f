#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/generate/decoder.h"
#include "lockstep/generate/sampler.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep::generate {

// Gets the next letters of a text as they come, whole ones only.
using Stream = std::function<void(std::size_t text, std::string_view letters)>;

struct GenerateOptions {
  std::int64_t max_tokens = 128;  // new ones, of each text
  SamplerOptions sampling;
  // A text ends before the first of these that it comes to.
  std::vector<std::string> stop_words;
  // Tokens that end a text, beside the tokenizer's end of text.
  std::vector<std::int64_t> end_tokens = {};
  Stream stream = {};
};

// Why a text ends where it does.
enum class Ended { max_tokens, end_of_text, stop_word, context_full };
std::string_view name_of(Ended ended) noexcept;

struct Generated {
  std::string text;  // without the prompt and the stop word; it may end in mid-letter
  std::vector<std::int64_t> tokens;  // the new ones, the end of the text included
  std::int64_t prompt_tokens = 0;
  Ended ended = Ended::max_tokens;
};

// A language model, and the tokenizer that it was trained with.
struct TextModel {
  Decoder& decoder;
  const tokenizer::Tokenizer& words;
};

// Continues each prompt. The texts are computed together and do not influence each
// other. Throws Fault::config, with the arithmetic, for a prompt that has no token, or
// leaves no room for one in the model's context, and for a tokenizer with more tokens
// than the model's vocabulary.
std::vector<Generated> generate(const TextModel& model,
                                const std::vector<std::string>& prompts,
                                const GenerateOptions& options);

// Does the same for prompts that are tokens already.
std::vector<Generated> generate_from(const TextModel& model,
                                     std::vector<std::vector<std::int64_t>> prompts,
                                     const GenerateOptions& options);

// Throws Fault::config if the tokenizer is not one for this model.
void check_vocabulary(const Decoder& decoder, const tokenizer::Tokenizer& words);

// Returns how many bytes at the front of `bytes` are whole letters of UTF-8; bytes that
// begin none count as letters, so that the rest is never more than three.
std::size_t whole_letters(std::string_view bytes) noexcept;

}  // namespace lockstep::generate
