#include "lockstep/hf/settle.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/hf/detail/settled.h"
#include "lockstep/hf/model_folders.h"
#include "lockstep/hf/tensors.h"
#include "lockstep/hf/weights.h"
#include "lockstep/storage/weights_file.h"
#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep::hf {
namespace {

using detail::check_padding;
using detail::compared_sizes;
using detail::is_folder;

// The recipe while it is being settled.
class Settling {
 public:
  Settling(config::Loaded& loaded, const Gpt2& model)
      : loaded_(loaded),
        model_(model),
        file_((Path(loaded.config.model.weights) / kConfigName).string()) {}

  void settle_name() {
    auto& name = loaded_.config.model.name;
    if (is_open("model.name")) {
      name = "gpt";
      note("model.name", "model_type");
    } else if (name != "gpt") {
      refuse("model.name", str("'", name, "', but ", file_,
                               " is of a gpt2; set model.name=gpt, or name other "
                               "weights"));
    }
  }

  void settle_sizes() {
    for (auto& [key, knob, field, value] : compared_sizes(loaded_.config, model_)) {
      // 0 leaves a size to the data.
      if (is_open(key) || knob == 0) {
        knob = value;
        note(key, field);
      } else if (knob != value) {
        refuse(key, str(knob, ", but ", file_, " has ", field, "=", value, "; leave ",
                        key, " out, or name other weights"));
      }
    }
    auto& sequence = loaded_.config.data.sequence;
    const auto& data = loaded_.config.data;
    const bool has_sequence = data.name == "tokens" || data.name == "text";
    if (!has_sequence || sequence <= model_.context) return;
    if (is_open("data.sequence")) {
      sequence = model_.context;
      note("data.sequence", "n_positions");
    } else {
      refuse("data.sequence", str(sequence, " tokens, but ", file_, " has n_positions=",
                                  model_.context, "; lower data.sequence"));
    }
  }

  // Texts become tokens as they did for these weights.
  void settle_tokenizer() {
    auto& data = loaded_.config.data;
    if (data.name != "text") return;
    if (data.text.tokenizer.empty()) {
      data.text.tokenizer = loaded_.config.model.weights;
      note("data.tokenizer", "tokenizer");
    }
    const auto words = tokenizer::Tokenizer::load(data.text.tokenizer);
    const auto tokens = static_cast<std::int64_t>(words.size());
    if (tokens == model_.vocabulary) return;
    refuse("data.tokenizer",
           str("'", data.text.tokenizer, "' has ", tokens, " tokens, but ", file_,
               " has vocab_size=", model_.vocabulary,
               "; name the tokenizer of the "
               "weights, or other weights"));
  }

  // Returns what is said of the dropout that is used.
  std::string settle_dropout() {
    auto& dropout = loaded_.config.model.dropout;
    const auto its = fmt::format("embd_pdrop={}, attn_pdrop={}, resid_pdrop={}",
                                 model_.embedding_dropout, model_.attention_dropout,
                                 model_.residual_dropout);
    const bool alike = model_.embedding_dropout == model_.attention_dropout &&
                       model_.embedding_dropout == model_.residual_dropout;
    if (!is_open("model.dropout")) {
      const bool same = alike && dropout == model_.embedding_dropout;
      return same ? fmt::format("dropout {}", dropout)
                  : fmt::format("dropout {} as model.dropout says ({} there)", dropout,
                                its);
    }
    if (!alike) {
      refuse("model.dropout", str("our gpt has one, but ", file_, " has ", its,
                                  "; set model.dropout to the one to train with"));
    }
    dropout = model_.embedding_dropout;
    note("model.dropout", "resid_pdrop");
    return fmt::format("dropout {} as there (model.dropout changes it)", dropout);
  }

 private:
  bool is_open(const std::string& key) const {
    const auto source = loaded_.sources.find(key);
    return source == loaded_.sources.end() ||
           source->second.origin == config::Origin::standard;
  }

  // Records which field of the folder has decided a knob.
  void note(const std::string& key, const std::string& field) {
    loaded_.sources[key] = {config::Origin::planner, str(field, " of ", file_)};
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& text) const {
    const auto source = loaded_.sources.find(key);
    const auto place =
        source == loaded_.sources.end() ? "" : config::place_of(source->second);
    throw Error(Fault::config, place, place.empty() ? "" : ": ", key, ": ", text);
  }

  config::Loaded& loaded_;
  const Gpt2& model_;
  const std::string file_;
};

// Returns whether a file holds a GPT-2 in the layout of transformers, which only
// config.json beside it explains.
bool is_of_transformers(const Path& file) {
  std::optional<std::int64_t> width;
  std::optional<storage::Shape> attention;
  try {
    const storage::WeightsFile weights(file);
    for (const auto& entry : weights.tensors()) {
      const bool has_prefix = entry.name.starts_with(kPrefix);
      const auto name = entry.name.substr(has_prefix ? kPrefix.size() : 0);
      if (name == kEmbedding && has_prefix) return true;
      if (name == kEmbedding && entry.shape.size() == 2) width = entry.shape[1];
      if (name == "h.0.attn.c_attn.weight") attention = entry.shape;
    }
  } catch (const Error&) {
    return false;  // whoever loads it says what is wrong with it
  }
  return width && attention && attention->size() == 2 && attention->at(0) == *width;
}

void refuse_file_of_folder(const Path& file) {
  if (!is_of_transformers(file)) return;
  const auto folder = file.parent_path();
  std::error_code ignored;
  const bool has_config = std::filesystem::exists(folder / kConfigName, ignored);
  throw Error(Fault::config, "model.weights: '", file.string(),
              "' is a file out of a folder of Hugging Face, whose config.json has to "
              "be read with it; ",
              has_config ? "name the folder: model.weights="
                         : "copy config.json beside it and name the folder: "
                           "model.weights=",
              folder.string());
}

}  // namespace

std::vector<std::string> settle(config::Loaded& loaded, const Path& models) {
  // A run may be looked at from another directory.
  auto& tokenizer = loaded.config.data.text.tokenizer;
  if (!tokenizer.empty()) tokenizer = std::filesystem::absolute(tokenizer).string();
  auto& weights = loaded.config.model.weights;
  if (weights.empty()) {
    check_padding(loaded.config);
    return {};
  }
  const auto found = std::filesystem::absolute(find_weights(weights, models)).string();
  if (found != std::filesystem::absolute(weights).string()) {
    loaded.sources["model.weights"] = {config::Origin::planner,
                                       str("the model '", weights, "'")};
  }
  weights = found;
  if (!is_folder(weights)) {
    refuse_file_of_folder(weights);
    check_padding(loaded.config);
    return {};
  }
  const Weights files(weights);
  const auto& checkpoint = loaded.config.checkpoint;
  files.check({checkpoint.allow_missing, checkpoint.ignore});
  const auto& model = files.model();
  Settling settling(loaded, model);
  settling.settle_name();
  settling.settle_sizes();
  settling.settle_tokenizer();
  const auto dropout = settling.settle_dropout();
  check_padding(loaded.config);
  config::validate(loaded);
  return {
      fmt::format("model.weights: {} is a GPT-2 of {} parameters: {} blocks, {} "
                  "heads, width {}, {} positions, {} tokens; {}",
                  weights, text::with_commas(num_parameters(model)), model.layers,
                  model.heads, model.hidden, model.context, model.vocabulary, dropout)};
}

}  // namespace lockstep::hf
