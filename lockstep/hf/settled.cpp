// What a worker checks of a settled recipe; reading recipes is not its part.
#include "lockstep/hf/detail/settled.h"

#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/hf/settle.h"

namespace lockstep::hf {

std::vector<detail::Size> detail::compared_sizes(config::Config& config,
                                                 const Gpt2& model) {
  std::vector<Size> sizes = {
      {"model.hidden", config.model.hidden, "n_embd", model.hidden},
      {"model.layers", config.model.layers, "n_layer", model.layers},
      {"model.heads", config.model.heads, "n_head", model.heads},
      {"model.context", config.model.context, "n_positions", model.context}};
  // Other data sets bring their number of classes with them.
  if (config.data.name == "tokens" || config.data.name == "synthetic") {
    sizes.push_back(
        {"data.classes", config.data.classes, "vocab_size", model.vocabulary});
  }
  return sizes;
}

bool detail::is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

void detail::check_padding(const config::Config& config) {
  const auto& [model, data] = std::tie(config.model, config.data);
  const bool is_known = data.classes > 0 || data.name == "text";
  if (model.name != "gpt" || model.pad_vocabulary == 1 || is_known) return;
  throw Error(Fault::config, "model.pad_vocabulary: ", model.pad_vocabulary,
              ", but data.classes is 0, so that nobody could tell later which rows are "
              "tokens; set data.classes to the size of the vocabulary, for example "
              "50257");
}

void check_settled(const config::Config& config) {
  detail::check_padding(config);
  if (!detail::is_folder(config.model.weights)) return;
  const auto model = read_gpt2(config.model.weights);
  auto copy = config;
  for (const auto& [key, knob, field, value] : detail::compared_sizes(copy, model)) {
    if (knob == 0 || knob == value) continue;
    throw Error(Fault::config, key, ": ", knob, ", but ",
                (Path(config.model.weights) / kConfigName).string(), " has ", field,
                "=", value, "; make them agree, or name other weights");
  }
}

}  // namespace lockstep::hf
