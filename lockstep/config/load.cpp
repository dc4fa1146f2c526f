#include "lockstep/config/load.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/detail/loading.h"

namespace lockstep::config {
namespace {

using detail::apply_override;
using detail::Knobs;
using detail::Loading;
using detail::unknown;

constexpr std::int64_t kLargestRecipeBytes = 1 << 20;
constexpr std::string_view kPrefix = "LOCKSTEP_";
constexpr std::string_view kStandardInput = "-";

// "LOCKSTEP_OPTIM_LR" has the parts "optim" and "lr", "LOCKSTEP_OPTIM" has "optim" and
// ""; a name without a section has none.
struct VariableName {
  std::string section;
  std::string key;
};

std::optional<VariableName> variable_name(const Knobs& knobs,
                                          std::string_view variable) {
  if (!text::starts_with(variable, kPrefix)) return std::nullopt;
  const auto rest = text::lower(variable.substr(kPrefix.size()));
  // Sections have underscores, too: early_stop.
  for (const auto& section : knobs.sections) {
    const std::string name(section.name);
    if (rest == name) return VariableName{name, ""};
    if (text::starts_with(rest, name + "_")) {
      return VariableName{name, rest.substr(name.size() + 1)};
    }
  }
  return std::nullopt;
}

void apply_environment(Loading& loading, const Environment& environment) {
  for (const auto& [variable, value] : environment) {
    const auto name = variable_name(loading.knobs, variable);
    if (!name || value.empty()) continue;
    const auto key =
        name->key.empty() ? name->section : str(name->section, ".", name->key);
    const auto* knob = loading.knobs.find(key);
    if (knob == nullptr) {
      loading.problems.add(variable, "", unknown(loading.knobs, key));
    } else {
      loading.assign_text(*knob, value, {Origin::environment, variable});
    }
  }
}

std::vector<std::string> names_in_folder(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(folder, ignored), end; it != end;
       it.increment(ignored)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns the recipes in ./recipes that a bare name ("resnet18") may mean.
std::vector<std::string> shipped_recipes(const std::filesystem::path& recipe) {
  const std::filesystem::path folder = "recipes";
  const auto word = recipe.stem().string();
  const auto names = names_in_folder(folder);
  std::vector<std::string> found;
  for (const auto& name : names) {
    if (!word.empty() && name.starts_with(word)) {
      found.push_back((folder / name).string());
    }
  }
  const auto guess = text::closest(word + ".yaml", names);
  if (found.empty() && guess) found.push_back((folder / *guess).string());
  return found;
}

// Returns a recipe beside the missing one with nearly its name, or one that ships.
std::string similar_file(const std::filesystem::path& recipe) {
  const auto folder = recipe.has_parent_path() ? recipe.parent_path() : ".";
  const auto guess = text::closest(recipe.filename().string(), names_in_folder(folder));
  if (guess) {
    const auto path = recipe.has_parent_path() ? (folder / *guess).string() : *guess;
    return str("; did you mean '", path, "'?");
  }
  if (recipe.has_parent_path()) return "";
  const auto shipped = shipped_recipes(recipe);
  return shipped.empty() ? ""
                         : str("; did you mean '", text::join(shipped, "' or '"), "'?");
}

std::string read_recipe(const std::filesystem::path& recipe) {
  if (recipe.empty()) {
    throw Error(Fault::config,
                "the name of the recipe is empty; name a YAML or JSON file, or - for "
                "standard input");
  }
  if (recipe == kStandardInput) return files::read("/dev/stdin", kLargestRecipeBytes);
  std::error_code ignored;
  if (!std::filesystem::exists(recipe, ignored) && !ignored) {
    throw Error(Fault::io, recipe.string(), ": there is no such recipe",
                similar_file(recipe));
  }
  return files::read(recipe, kLargestRecipeBytes);
}

void apply_file(Loading& loading, const std::filesystem::path& recipe) {
  const auto file = recipe == kStandardInput ? "standard input" : recipe.string();
  detail::apply_text(loading, file, read_recipe(recipe));
}

// train.steps and train.epochs say the same thing in two ways: the one from the source
// with the higher precedence replaces the other. From the same source, they contradict.
void settle_length(Loaded& loaded) {
  auto& steps = loaded.sources["train.steps"];
  auto& epochs = loaded.sources["train.epochs"];
  auto& train = loaded.config.train;
  if (train.steps.value_or(0) == 0 || train.epochs.value_or(0) == 0) return;
  if (steps.origin > epochs.origin) {
    train.epochs = Auto<std::int64_t>();
    epochs = steps;
  } else if (epochs.origin > steps.origin) {
    train.steps = Auto<std::int64_t>();
    steps = epochs;
  }
}

// A size by name stands for the knobs that nobody set; one that was set otherwise
// contradicts it.
void settle_size(Loading& loading, const Loaded& loaded) {
  const auto& model = loaded.config.model;
  const auto* size = find_gpt_size(model.size);
  if (model.name != "gpt" || size == nullptr) return;
  for (const auto& [key, value] : {std::pair("model.hidden", size->hidden),
                                   std::pair("model.layers", size->layers),
                                   std::pair("model.heads", size->heads)}) {
    const auto* knob = loading.knobs.find(key);
    auto& source = loading.sources[key];
    if (source.origin == Origin::standard) {
      loading.assign_text(*knob, str(value),
                          {Origin::planner, str("model.size is ", model.size)});
    } else if (knob->write().yaml != str(value)) {
      loading.problems.add(place_of(source), key,
                           str(knob->write().yaml, ", but model.size=", model.size,
                               " has ", value, "; leave one of them out"));
    }
  }
}

Loading loading_of(Loaded& loaded) {
  return Loading(loaded.sources, detail::knobs_of(loaded.config));
}

// What is set beside the recipe.
struct Beside {
  std::span<const Override> overrides;
  const Environment& environment;
};

void finish(Loading& loading, Loaded& loaded, const Beside& beside) {
  const auto& [overrides, environment] = beside;
  apply_environment(loading, environment);
  for (const auto& [key, value] : overrides) {
    apply_override(loading, {key, value}, {Origin::override_, str(key, "=", value)});
  }
  loading.problems.throw_if_any();
  settle_size(loading, loaded);
  loading.problems.throw_if_any();
  settle_length(loaded);
  validate(loaded);
}

}  // namespace

std::string place_of(const Source& source) {
  switch (source.origin) {
    case Origin::recipe:
    case Origin::environment:
      return source.where;
    case Origin::override_:
      return str("override '", source.where, "'");
    case Origin::standard:
    case Origin::planner:
      return "";
  }
  return "";
}

Override parse_override(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) {
    throw Error(Fault::config, "override '", text,
                "': not of the form section.key=value, for example optim.lr=3e-4");
  }
  return {std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

Loaded load(const std::filesystem::path& recipe, std::span<const Override> overrides,
            const Environment& environment) {
  Loaded loaded;
  loaded.recipe = recipe.string();
  auto loading = loading_of(loaded);
  apply_file(loading, recipe);
  finish(loading, loaded, {overrides, environment});
  return loaded;
}

Loaded load_text(const std::string& name, std::string_view content,
                 std::span<const Override> overrides) {
  Loaded loaded;
  loaded.recipe = name;
  auto loading = loading_of(loaded);
  if (content.size() > kLargestRecipeBytes) {
    throw Error(Fault::config, name, ": more than ", kLargestRecipeBytes, " bytes");
  }
  detail::apply_text(loading, name, content);
  finish(loading, loaded, {overrides, {}});
  return loaded;
}

Loaded defaults(std::span<const Override> overrides, const Environment& environment) {
  Loaded loaded;
  auto loading = loading_of(loaded);
  finish(loading, loaded, {overrides, environment});
  return loaded;
}

void set(Loaded& loaded, const Override& given, const Source& source) {
  auto loading = loading_of(loaded);
  apply_override(loading, given, source);
  loading.problems.throw_if_any();
}

std::string get(const Loaded& loaded, std::string_view key) {
  auto copy = loaded.config;
  const auto knobs = detail::knobs_of(copy);
  const auto* knob = knobs.find(key);
  if (knob == nullptr) throw Error(Fault::config, unknown(knobs, key));
  return knob->write().yaml;
}

std::vector<std::string> local_keys() {
  Config config;
  std::vector<std::string> keys;
  for (const auto& knob : detail::knobs_of(config).all) {
    if (knob.field.is_local) keys.push_back(knob.key);
  }
  return keys;
}

std::vector<std::string> keys() {
  Config config;
  std::vector<std::string> keys;
  for (const auto& knob : detail::knobs_of(config).all) keys.push_back(knob.key);
  return keys;
}

}  // namespace lockstep::config
