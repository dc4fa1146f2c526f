#include "lockstep/hf/peft.h"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/hf/tensors.h"

namespace lockstep::hf {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBase = "base_model.model.";
constexpr std::string_view kWeight = ".weight";
constexpr std::int64_t kLongestConfig = 1 << 20;

bool is_set(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_object() || value.is_array() || value.is_string()) return !value.empty();
  return true;
}

// Keys that do not change what a plain adapter computes, or that are read. A key that
// is set and not among them may: it is refused.
constexpr auto kKnown = std::to_array<std::string_view>(
    {"peft_type", "task_type", "base_model_name_or_path", "revision", "inference_mode",
     "auto_mapping", "peft_version", "r", "lora_alpha", "lora_dropout",
     "target_modules", "bias", "fan_in_fan_out", "init_lora_weights",
     // The names of the tensors say which layers are adapted.
     "exclude_modules", "layers_to_transform", "layers_pattern",
     // How the adapters began, or how they are merged at run time.
     "eva_config", "qalora_group_size", "runtime_config", "ephemeral_gpu_offload",
     "megatron_core"});

constexpr std::string_view kMerge =
    "; merge such adapters with PEFT (merge_and_unload) and load the result as "
    "model.weights";

// Some ways to begin take a part out of the weights of the model: the adapters fit only
// what is left of them.
void check_init(const Json& init, const std::string& place) {
  if (init.is_boolean() || init.is_null()) return;
  const auto name = init.is_string() ? text::lower(init.get<std::string>()) : "";
  if (name == "gaussian" || name == "eva" || name == "orthogonal") return;
  throw Error(Fault::config, place, ": init_lora_weights is ", init.dump(),
              ", which is none of those that leave the weights under the adapters as "
              "they are (true, false, gaussian, eva, orthogonal)",
              kMerge);
}

// Refuses what changes what an adapter computes, or which weights it needs.
void refuse_other_kinds(const Json& json, const std::string& place) {
  if (json.value("peft_type", "") != "LORA") {
    throw Error(Fault::config, place, ": peft_type is ",
                json.contains("peft_type") ? json["peft_type"].dump() : "missing",
                "; only \"LORA\" is supported");
  }
  if (json.contains("bias") && json["bias"] != "none") {
    throw Error(Fault::config, place, ": bias is ", json["bias"].dump(),
                "; adapters that train biases, too, are not supported");
  }
  if (json.contains("init_lora_weights")) check_init(json["init_lora_weights"], place);
  for (const auto& [key, value] : json.items()) {
    const bool is_known = std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end();
    if (is_known || !is_set(value)) continue;
    throw Error(Fault::config, place, ": ", key, " is ", value.dump(),
                ", which is not supported", kMerge);
  }
}

}  // namespace

Adapter adapter_from_json(std::string_view text, const std::string& place) {
  Json json;
  try {
    json = Json::parse(text);
    if (!json.is_object())
      throw Error(Fault::config, place, ": it is not a JSON object");
    refuse_other_kinds(json, place);
    Adapter adapter{.rank = json.at("r").get<std::int64_t>(),
                    .alpha = json.at("lora_alpha").get<double>(),
                    .dropout = json.value("lora_dropout", 0.0)};
    if (adapter.rank < 1) {
      throw Error(Fault::config, place, ": r is ", adapter.rank, ", not a rank");
    }
    const auto& targets =
        json.contains("target_modules") ? json["target_modules"] : Json();
    if (targets.is_array()) {
      adapter.targets = targets.get<std::vector<std::string>>();
    } else if (targets.is_string()) {
      adapter.targets = {targets.get<std::string>()};
    }
    const auto base = json.find("base_model_name_or_path");
    if (base != json.end() && base->is_string())
      adapter.base = base->get<std::string>();
    return adapter;
  } catch (const Json::exception& error) {
    throw Error(Fault::config, place, ": it is not what PEFT writes (", error.what(),
                "); copy it again");
  }
}

Adapter read_adapter(const std::filesystem::path& folder) {
  const auto path = folder / kAdapterConfigName;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(Fault::config, "lora.weights: '", folder.string(), "' has no ",
                kAdapterConfigName,
                "; name the folder that PEFT's save_pretrained has "
                "written");
  }
  return adapter_from_json(files::read(path, kLongestConfig), path.string());
}

std::string adapter_config_json(const Adapter& adapter) {
  Json json{{"peft_type", "LORA"},
            {"task_type", "CAUSAL_LM"},
            {"base_model_name_or_path", adapter.base},
            {"r", adapter.rank},
            {"lora_alpha", adapter.alpha},
            {"lora_dropout", adapter.dropout},
            {"target_modules", adapter.targets},
            {"bias", "none"},
            // The layers of transformers' GPT-2 keep their weights transposed.
            {"fan_in_fan_out", true},
            {"inference_mode", true}};
  return json.dump(2) + "\n";
}

std::string to_peft(std::string_view parameter) {
  return str(kBase, kPrefix, parameter, kWeight);
}

std::optional<std::string> from_peft(std::string_view name) {
  if (!name.starts_with(kBase) || !name.ends_with(kWeight)) return std::nullopt;
  name.remove_prefix(kBase.size());
  name.remove_suffix(kWeight.size());
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  // "lora_A.default" is what older versions call it.
  for (const std::string_view end : {".default"}) {
    if (name.ends_with(end)) name.remove_suffix(end.size());
  }
  if (!name.ends_with(".lora_A") && !name.ends_with(".lora_B")) return std::nullopt;
  return std::string(name);
}

}  // namespace lockstep::hf
