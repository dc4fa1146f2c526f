#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::config {

// The only table of GPT-2's sizes: the planner's name, that of Hugging Face, width,
// blocks, heads. tools/describe_gpt2.py reads it, too.
#define LOCKSTEP_GPT2_SIZES(X)                \
  X("gpt2-124m", "gpt2", 768, 12, 12)         \
  X("gpt2-355m", "gpt2-medium", 1024, 24, 16) \
  X("gpt2-774m", "gpt2-large", 1280, 36, 20)  \
  X("gpt2-1.5b", "gpt2-xl", 1600, 48, 25)

struct GptSize {
  std::string_view name;
  std::string_view hf_name;
  std::int64_t hidden = 0, layers = 0, heads = 0;
};

#define LOCKSTEP_ROW(name, hf_name, hidden, layers, heads) \
  GptSize{name, hf_name, hidden, layers, heads},
inline constexpr std::array kGptSizes{LOCKSTEP_GPT2_SIZES(LOCKSTEP_ROW)};
#undef LOCKSTEP_ROW

// The word for a size that the other knobs give.
inline constexpr std::string_view kCustomSize = "custom";

#define LOCKSTEP_NAME(name, hf_name, hidden, layers, heads) \
  std::string_view(name), std::string_view(hf_name),
inline constexpr std::array kGptSizeNames{kCustomSize,
                                          LOCKSTEP_GPT2_SIZES(LOCKSTEP_NAME)};
#undef LOCKSTEP_NAME

// Returns the size of that name, either of the two; null for any other word.
constexpr const GptSize* find_gpt_size(std::string_view name) {
  for (const auto& size : kGptSizes) {
    if (size.name == name || size.hf_name == name) return &size;
  }
  return nullptr;
}

}  // namespace lockstep::config
