#include "lockstep/hf/gpt2.h"

#include <cmath>
#include <initializer_list>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/json_problem.h"

namespace lockstep::hf {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLargestConfigBytes = 1 << 20;
// The ranges of the knobs.
constexpr std::int64_t kMostTokens = 1 << 24;
constexpr std::int64_t kWidest = 65536;
constexpr std::int64_t kMostLayers = 1000;
constexpr std::int64_t kMostHeads = 1024;
constexpr double kEpsilon = 1e-5;  // of the norms of our gpt
constexpr double kDropout = 0.1;   // what transformers takes without a word of it
constexpr double kInitialDeviation = 0.02;

// Reads fields and refuses what stands in them by accident.
class Fields {
 public:
  Fields(const Json& json, const std::string& place) : json_(json), place_(place) {}

  template <typename... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw Error(Fault::config, place_, ": ", parts...);
  }

  // Returns null for a field that is missing or null.
  const Json* find(std::string_view name) const {
    const auto found = json_.find(name);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }

  // Models of other tools have other names for the same size.
  std::int64_t size(std::initializer_list<std::string_view> names,
                    std::int64_t most) const {
    for (const auto name : names) {
      if (const auto* value = find(name)) return size_of(name, *value, most);
    }
    refuse("it does not say ", *names.begin(),
           "; copy the config.json that belongs to the weights");
  }

  double share(std::string_view name) const {
    const auto* value = find(name);
    if (value == nullptr) return kDropout;
    const auto number = value->is_number() ? value->get<double>() : -1;
    if (number >= 0 && number < 1) return number;
    refuse(name, " is ", value->dump(), ", not a share from 0 to below 1");
  }

  bool flag(std::string_view name, bool standard) const {
    const auto* value = find(name);
    if (value == nullptr) return standard;
    if (value->is_boolean()) return value->get<bool>();
    refuse(name, " is ", value->dump(), ", neither true nor false");
  }

  std::optional<std::int64_t> token(std::string_view name) const {
    const auto* value = find(name);
    if (value == nullptr || !value->is_number_integer()) return std::nullopt;
    return value->get<std::int64_t>();
  }

 private:
  std::int64_t size_of(std::string_view name, const Json& value,
                       std::int64_t most) const {
    // A number beyond 64 bits is a float, or wraps to a negative one.
    const auto number = value.is_number_integer() ? value.get<std::int64_t>() : 0;
    if (number >= 1 && number <= most) return number;
    refuse(name, " is ", value.dump(), ", not a whole number from 1 to ", most);
  }

  const Json& json_;
  const std::string& place_;
};

void check_type(const Fields& fields) {
  const auto* type = fields.find("model_type");
  if (type == nullptr) {
    fields.refuse("it does not say model_type; a GPT-2 has \"model_type\": \"gpt2\"");
  }
  if (*type == "lockstep") {
    fields.refuse(
        "it is of a model of ours, which needs no folder; set model.weights "
        "to the model.safetensors beside it");
  }
  if (*type != "gpt2") {
    fields.refuse("model_type is ", type->dump(),
                  ", and only \"gpt2\" can be loaded; name the folder of a GPT-2");
  }
}

// Refuses what would change the results without a word.
void check_computation(const Fields& fields, const Gpt2& model) {
  if (const auto* name = fields.find("activation_function")) {
    const bool is_known = *name == "gelu_new" || *name == "gelu_pytorch_tanh";
    if (!is_known) {
      fields.refuse("activation_function is ", name->dump(),
                    ", our gpt has gelu_new only; name other weights");
    }
  }
  if (const auto* inner = fields.find("n_inner")) {
    if (*inner != 4 * model.hidden) {
      fields.refuse("n_inner is ", inner->dump(),
                    ", our gpt has 4 * n_embd = ", 4 * model.hidden,
                    " only; name other weights");
    }
  }
  if (const auto* epsilon = fields.find("layer_norm_epsilon")) {
    const bool same = epsilon->is_number() &&
                      std::abs(epsilon->get<double>() - kEpsilon) < 1e-3 * kEpsilon;
    if (!same) {
      fields.refuse("layer_norm_epsilon is ", epsilon->dump(),
                    ", our gpt has 1e-05 only; name other weights");
    }
  }
  for (const auto& [name, value] : {std::pair("scale_attn_weights", true),
                                    std::pair("scale_attn_by_inverse_layer_idx", false),
                                    std::pair("add_cross_attention", false)}) {
    if (fields.flag(name, value) == value) continue;
    fields.refuse(name, " is ", value ? "false" : "true", ", our gpt has ",
                  value ? "true" : "false", " only; name other weights");
  }
  if (model.hidden % model.heads != 0) {
    fields.refuse("n_embd is ", model.hidden,
                  ", which is not a multiple of n_head=", model.heads,
                  "; the file is not the model's");
  }
}

std::string dtype_word(std::string_view dtype) {
  if (dtype == "BF16") return "bfloat16";
  if (dtype == "F16") return "float16";
  if (dtype == "F64") return "float64";
  return "float32";
}

Json token_json(const std::optional<std::int64_t>& token) {
  return token ? Json(*token) : Json(nullptr);
}

}  // namespace

Gpt2 gpt2_from_json(std::string_view text, const std::string& place) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const std::exception& error) {
    throw Error(Fault::config, place, ": ", json_problem(error),
                "; copy it again from where the weights are from");
  }
  if (!json.is_object()) throw Error(Fault::config, place, ": it is not a JSON object");
  const Fields fields(json, place);
  check_type(fields);
  Gpt2 model{.vocabulary = fields.size({"vocab_size"}, kMostTokens),
             .context = fields.size({"n_positions", "max_position_embeddings", "n_ctx"},
                                    kMostTokens),
             .hidden = fields.size({"n_embd", "hidden_size"}, kWidest),
             .layers = fields.size({"n_layer", "num_hidden_layers"}, kMostLayers),
             .heads = fields.size({"n_head", "num_attention_heads"}, kMostHeads),
             .embedding_dropout = fields.share("embd_pdrop"),
             .attention_dropout = fields.share("attn_pdrop"),
             .residual_dropout = fields.share("resid_pdrop"),
             .is_tied = fields.flag("tie_word_embeddings", true),
             .first_token = fields.token("bos_token_id"),
             .last_token = fields.token("eos_token_id")};
  check_computation(fields, model);
  return model;
}

Gpt2 read_gpt2(const Path& folder) {
  const auto file = folder / kConfigName;
  std::error_code ignored;
  if (std::filesystem::exists(folder / "adapter_config.json", ignored) &&
      !std::filesystem::exists(file, ignored)) {
    throw Error(Fault::config, folder.string(),
                ": it holds adapters of PEFT; name it as lora.weights, and the model "
                "that they belong to as model.weights");
  }
  if (!std::filesystem::exists(file, ignored)) {
    throw Error(Fault::config, folder.string(), ": there is no ", kConfigName,
                " in it; name the folder of a Hugging Face model, or a file");
  }
  return gpt2_from_json(files::read(file, kLargestConfigBytes), file.string());
}

std::vector<std::int64_t> end_tokens(const Path& folder) {
  const auto file = folder / "generation_config.json";
  const auto last = read_gpt2(folder).last_token;
  std::error_code ignored;
  std::vector<std::int64_t> tokens;
  if (last) tokens.push_back(*last);
  if (!std::filesystem::exists(file, ignored)) return tokens;
  try {
    const auto json = Json::parse(files::read(file, kLargestConfigBytes));
    const auto found = json.find("eos_token_id");
    if (found == json.end() || found->is_null()) return tokens;
    if (found->is_array()) return found->get<std::vector<std::int64_t>>();
    return {found->get<std::int64_t>()};
  } catch (const Json::exception& error) {
    throw Error(Fault::config, file.string(), ": ", json_problem(error),
                "; copy it again from where the weights are from");
  }
}

std::string config_json(const Gpt2& model, std::string_view dtype) {
  const Json json = {{"architectures", {"GPT2LMHeadModel"}},
                     {"model_type", "gpt2"},
                     {"vocab_size", model.vocabulary},
                     {"n_positions", model.context},
                     {"n_ctx", model.context},
                     {"n_embd", model.hidden},
                     {"n_layer", model.layers},
                     {"n_head", model.heads},
                     {"n_inner", nullptr},
                     {"activation_function", "gelu_new"},
                     {"embd_pdrop", model.embedding_dropout},
                     {"attn_pdrop", model.attention_dropout},
                     {"resid_pdrop", model.residual_dropout},
                     {"layer_norm_epsilon", kEpsilon},
                     {"initializer_range", kInitialDeviation},
                     {"bos_token_id", token_json(model.first_token)},
                     {"eos_token_id", token_json(model.last_token)},
                     {"tie_word_embeddings", model.is_tied},
                     {"torch_dtype", dtype_word(dtype)}};
  return json.dump(2) + "\n";
}

std::string generation_config_json(const Gpt2& model) {
  Json json = {{"_from_model_config", true}};
  if (model.first_token) json["bos_token_id"] = *model.first_token;
  if (model.last_token) json["eos_token_id"] = *model.last_token;
  return json.dump(2) + "\n";
}

}  // namespace lockstep::hf
