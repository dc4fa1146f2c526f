#include "lockstep/hf/model_folders.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/config/gpt_sizes.h"
#include "lockstep/hf/export.h"
#include "lockstep/hf/tensors.h"
#include "lockstep/hf/weights.h"
#include "lockstep/storage/file_system.h"

namespace lockstep::hf {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 100;

bool is_plain(const std::string& name) {
  const bool chars = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '.' || c == '_' || c == '-';
  });
  return chars && !name.empty() && name[0] != '.' && name.size() <= kLongestName;
}

ModelFolder look_at(const Path& path) {
  ModelFolder folder{.name = path.filename().string(), .path = path};
  std::error_code ignored;
  for (const auto& name : storage::names_in(path)) {
    folder.files.push_back(name);
    const auto bytes = fs::file_size(path / name, ignored);
    if (!ignored) folder.bytes += static_cast<std::int64_t>(bytes);
  }
  try {
    folder.model = read_gpt2(path);
    weight_files(path);
  } catch (const Error& error) {
    folder.model.reset();
    folder.problem = error.what();
  }
  return folder;
}

// Returns the sentence that says where a model comes from.
std::string how_to_get(const std::string& name) {
  const auto* size = config::find_gpt_size(name);
  const bool is_known = size != nullptr && size->hf_name == name;
  const auto repository =
      is_known ? str("openai-community/", name) : std::string("OWNER/NAME");
  const auto word = is_plain(name) ? name : "NAME";
  return str("; get it on a machine with a network (hf download ", repository,
             " --local-dir ", word, "), then: lockstep models add ", word, " ", word);
}

void check_free(const Path& models, const std::string& name) {
  if (!is_plain(name)) {
    throw Error(Fault::config, "models add: '", name, "' is not a plain name; use ",
                "letters, digits, '.', '_' and '-', at most ", kLongestName);
  }
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(models / name, ignored))) return;
  throw Error(Fault::config, "models add: '", name, "' is in '", models.string(),
              "' already; choose another name, or remove that folder first");
}

void copy_one(const Path& from, const Path& to) {
  std::error_code error;
  fs::copy_file(from, to, error);
  if (error) files::fail("copy", from, error.value());
}

void copy_model(const Path& from, const Path& to) {
  for (const auto& file : weight_files(from)) copy_one(file, to / file.filename());
  for (const auto* name :
       {"config.json", "generation_config.json", "model.safetensors.index.json",
        "pytorch_model.bin.index.json"}) {
    std::error_code ignored;
    if (fs::exists(from / name, ignored)) copy_one(from / name, to / name);
  }
  copy_tokenizer(from, to);
}

}  // namespace

std::vector<ModelFolder> list_models(const Path& models) {
  std::vector<ModelFolder> all;
  for (const auto& name : storage::names_in(models)) {
    std::error_code ignored;
    if (is_plain(name) && fs::is_directory(models / name, ignored)) {
      all.push_back(look_at(models / name));
    }
  }
  return all;
}

ModelFolder find_model(const Path& models, const std::string& name) {
  std::vector<std::string> names;
  for (auto& folder : list_models(models)) {
    if (folder.name == name) return folder;
    names.push_back(folder.name);
  }
  throw Error(Fault::config, "there is no model '", name, "' in '", models.string(),
              "', which has ", names.empty() ? "none" : text::join(names, ", "),
              text::did_you_mean(name, names), how_to_get(name));
}

ModelFolder add_model(const Path& models, const NewModel& model) {
  const auto& [name, from, adding] = model;
  check_free(models, name);
  std::error_code error;
  if (!fs::is_directory(from, error)) {
    throw Error(Fault::config, "models add: '", from.string(),
                "' is not a folder; name the one of a Hugging Face model");
  }
  Weights(from).check({});
  fs::create_directories(models, error);
  if (error) files::fail("make", models, error.value());
  const auto target = models / name;
  if (adding == Adding::link) {
    fs::create_directory_symlink(fs::canonical(from), target, error);
    if (error) files::fail("make", target, error.value());
    return look_at(target);
  }
  // Beside its place, so that nobody sees half a model.
  const files::TemporaryDirectory work(models);
  const auto whole = work.path() / name;
  files::make_new_directory(whole);
  copy_model(from, whole);
  fs::rename(whole, target, error);
  if (error) files::fail("make", target, error.value());
  return look_at(target);
}

Path find_weights(const std::string& weights, const Path& models) {
  std::error_code ignored;
  if (fs::exists(weights, ignored)) return weights;
  if (!is_plain(weights) || weights.ends_with(".safetensors")) {
    throw Error(Fault::config, "model.weights: there is no file or folder '", weights,
                "'");
  }
  try {
    return find_model(models, weights).path;
  } catch (const Error& error) {
    throw Error(error.fault(), "model.weights: there is no file or folder '", weights,
                "' here, and ", error.what());
  }
}

std::int64_t num_parameters(const Gpt2& model) {
  std::int64_t count = 0;
  for (const auto& tensor : tensors_of(model)) {
    count += storage::num_elements(tensor.shape).value_or(0);
  }
  return count;
}

}  // namespace lockstep::hf
