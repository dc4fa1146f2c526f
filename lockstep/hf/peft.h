#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// Adapters as Hugging Face's PEFT keeps them: a folder of adapter_config.json and
// adapter_model.safetensors.
namespace lockstep::hf {

inline constexpr std::string_view kAdapterConfigName = "adapter_config.json";
inline constexpr std::string_view kAdapterWeightsName = "adapter_model.safetensors";

// What adapter_config.json says of LoRA that our layers can compute.
struct Adapter {
  std::int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;
  std::vector<std::string> targets;  // layers, by the ends of their names
  std::string base;                  // the model that they belong to; may be empty
};

// Reads the text of adapter_config.json. Throws Fault::config, beginning with `place`,
// for adapters that are no LoRA, or of a kind that our layers do not compute.
Adapter adapter_from_json(std::string_view text, const std::string& place);

// Reads it from a folder; Fault::config if it is not there.
Adapter read_adapter(const std::filesystem::path& folder);

std::string adapter_config_json(const Adapter& adapter);

// Returns PEFT's name of a parameter: "base_model.model.transformer.h.0.attn.c_attn."
// "lora_A.weight" of "h.0.attn.c_attn.lora_A".
std::string to_peft(std::string_view parameter);

// Reverses it, whether the base was a GPT2LMHeadModel or a bare GPT2Model; nothing for
// a name that is none.
std::optional<std::string> from_peft(std::string_view name);

}  // namespace lockstep::hf
