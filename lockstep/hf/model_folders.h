#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/hf/gpt2.h"

// Models that recipes name: folders of Hugging Face in one folder.
namespace lockstep::hf {

struct ModelFolder {
  std::string name;
  Path path;
  std::optional<Gpt2> model;
  std::string problem;  // why there is no model
  std::vector<std::string> files;
  std::int64_t bytes = 0;  // of the files
};

// Returns what is in `models`, by name; nothing if it does not exist.
std::vector<ModelFolder> list_models(const Path& models);

// Returns one of them. Throws Fault::config, with how to get it, if it is not there.
ModelFolder find_model(const Path& models, const std::string& name);

// Copies the files of the model in `model.from` into `models`, or makes a link to the
// folder there; whole or not at all. Throws Fault::config for a name that is taken or
// is not plain, and what Weights throws for a folder whose weights can not be loaded.
enum class Adding { copy, link };
struct NewModel {
  std::string name;
  Path from;
  Adding adding = Adding::copy;
};
ModelFolder add_model(const Path& models, const NewModel& model);

// Returns what model.weights means: a file or folder of that path, else the folder of
// the model with that name. Throws Fault::config as find_model() does.
Path find_weights(const std::string& weights, const Path& models);

// Returns the number of its parameters, without reading the weights.
std::int64_t num_parameters(const Gpt2& model);

}  // namespace lockstep::hf
