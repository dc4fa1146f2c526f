#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/checkpoint/load.h"
#include "lockstep/config/load.h"
#include "lockstep/hf/settle.h"
#include "lockstep/models/model.h"

namespace lockstep::test {

// The recipe that names these weights, settled.
inline config::Loaded settled_recipe(const files::Path& weights,
                                     std::vector<std::string> words) {
  words.insert(words.end(), {"data.name=tokens", "data.dir=/none",
                             "model.weights=" + weights.string()});
  std::vector<config::Override> overrides;
  for (const auto& word : words) overrides.push_back(config::parse_override(word));
  auto loaded = config::defaults(overrides, {});
  hf::settle(loaded, "");
  return loaded;
}

// The model of such a recipe, with its weights.
inline std::shared_ptr<models::Model> model_with_weights(const config::Config& config) {
  auto model =
      models::build(config.model, {{config.data.sequence}, config.data.classes});
  checkpoint::load_weights(config.model.weights, *model,
                           {.pad_vocabulary = config.model.pad_vocabulary,
                            .vocabulary = config.data.classes});
  return model;
}

}  // namespace lockstep::test
