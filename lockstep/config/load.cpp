#include "lockstep/config/load.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/detail/knobs.h"
#include "lockstep/config/detail/problems.h"

namespace lockstep::config {
namespace {

using detail::Knobs;
using detail::Node;
using detail::Problems;

constexpr std::int64_t kLargestRecipeBytes = 1 << 20;
constexpr std::string_view kPrefix = "LOCKSTEP_";
constexpr std::string_view kStandardInput = "-";

std::string place(const std::string& file, const detail::Mark& mark) {
  return str(file, ":", mark.line, ":", mark.column);
}

// The state of loading: the knobs point into loaded.config.
struct Loading {
  Loaded& loaded;
  Knobs knobs;
  Problems problems;
  std::string file = {};  // the recipe that is being read

  explicit Loading(Loaded& target)
      : loaded(target), knobs(detail::knobs_of(target.config)) {
    for (const auto& knob : knobs.all) loaded.sources.try_emplace(knob.key);
  }

  void assign(const detail::Knob& knob, const Node& value, Source source) {
    if (const auto problem = knob.read(value)) {
      const bool inside = problem.mark && source.origin == Origin::recipe;
      problems.add(inside ? place(file, *problem.mark) : place_of(source), knob.key,
                   *problem);
      return;
    }
    loaded.sources[knob.key] = std::move(source);
  }

  void assign_text(const detail::Knob& knob, std::string_view text,
                   const Source& source) {
    try {
      assign(knob, detail::parse_value(text), source);
    } catch (const detail::SyntaxError& error) {
      problems.add(place_of(source), knob.key, error.message);
    }
  }
};

// A map of a recipe.
struct MapInFile {
  const Node& node;
  const std::string& file;
};

// Visits the entries of a map once each; a key that is no text, or is there for the
// second time, is a problem.
template <typename Visit>
void for_each_entry(const MapInFile& map, Problems& problems, const Visit& visit) {
  const auto& [node, file] = map;
  std::map<std::string, int> first_lines;
  for (std::size_t i = 0; i + 1 < node.items.size(); i += 2) {
    const Node& key = node.items[i];
    const auto where = place(file, key.mark);
    if (key.kind != Node::Kind::scalar) {
      problems.add(where, "", str("a key is a name, not ", name_of(key.kind)));
      continue;
    }
    const auto [first, is_new] = first_lines.emplace(key.text, key.mark.line);
    if (!is_new) {
      problems.add(where, "",
                   str("'", key.text, "' is there twice: in line ", first->second,
                       " and in line ", key.mark.line, "; remove one"));
      continue;
    }
    visit(key, node.items[i + 1]);
  }
}

void apply_section(Loading& loading, const std::string& section,
                   const MapInFile& fields) {
  const auto& file = fields.file;
  for_each_entry(fields, loading.problems, [&](const Node& key, const Node& value) {
    const auto* knob = loading.knobs.find(str(section, ".", key.text));
    if (knob == nullptr) {
      const auto problem = detail::unknown_key(loading.knobs, section, key.text);
      return loading.problems.add(place(file, key.mark), "", problem);
    }
    // An empty value has no place of its own.
    const auto& mark = value.kind == Node::Kind::null ? key.mark : value.mark;
    loading.assign(*knob, value, {Origin::recipe, place(file, mark)});
  });
}

void apply_recipe(Loading& loading, const std::string& file, const Node& root) {
  if (root.kind == Node::Kind::null) {
    throw Error(Fault::config, file,
                ":1:1: the recipe is empty; write at least one section, "
                "for example 'optim: {lr: 1e-3}'");
  }
  if (root.kind != Node::Kind::map) {
    throw Error(Fault::config, place(file, root.mark), ": the recipe is ",
                name_of(root.kind),
                "; write sections, for example 'optim: {lr: 1e-3}'");
  }
  for_each_entry(
      {root, file}, loading.problems, [&](const Node& key, const Node& fields) {
        const auto where = place(file, key.mark);
        if (!loading.knobs.has_section(key.text)) {
          const auto problem = detail::unknown_section(loading.knobs, key.text);
          loading.problems.add(where, "", problem);
        } else if (fields.kind != Node::Kind::map) {
          const auto problem =
              str("is ", name_of(fields.kind), "; a section has keys: ",
                  text::join(loading.knobs.names_in(key.text), ", "));
          loading.problems.add(where, key.text, problem);
        } else {
          apply_section(loading, key.text, {fields, file});
        }
      });
}

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

// Returns the problem with a key that find() does not know.
std::string unknown(const Knobs& knobs, std::string_view key) {
  if (knobs.has_section(key)) {
    const auto names = knobs.names_in(key);
    return str("'", key, "' is a section; set its keys one by one: ", key, ".",
               text::join(names, str(", ", key, ".")));
  }
  const auto dot = key.find('.');
  const auto section = key.substr(0, dot);
  if (dot == std::string_view::npos || !knobs.has_section(section)) {
    return detail::unknown_section(knobs, section == key ? key : section);
  }
  return detail::unknown_key(knobs, section, key.substr(dot + 1));
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

void apply_override(Loading& loading, const Override& given, const Source& source) {
  if (const auto* knob = loading.knobs.find(given.key)) {
    loading.assign_text(*knob, given.value, source);
  } else {
    loading.problems.add(place_of(source), "", unknown(loading.knobs, given.key));
  }
}

// Returns a recipe beside the missing one with nearly its name.
std::string similar_file(const std::filesystem::path& recipe) {
  const auto folder = recipe.has_parent_path() ? recipe.parent_path() : ".";
  std::vector<std::string> names;
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(folder, ignored), end; it != end;
       it.increment(ignored)) {
    names.push_back(it->path().filename().string());
  }
  const auto guess = text::closest(recipe.filename().string(), names);
  if (!guess) return "";
  const auto path = recipe.has_parent_path() ? (folder / *guess).string() : *guess;
  return str("; did you mean '", path, "'?");
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
  const auto content = read_recipe(recipe);
  loading.file = file;
  try {
    apply_recipe(loading, file, detail::parse_yaml(content));
  } catch (const detail::SyntaxError& error) {
    throw Error(Fault::config, place(file, error.mark), ": ", error.message);
  }
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
void settle_size(Loading& loading) {
  const auto& model = loading.loaded.config.model;
  const auto* size = find_gpt_size(model.size);
  if (model.name != "gpt" || size == nullptr) return;
  for (const auto& [key, value] : {std::pair("model.hidden", size->hidden),
                                   std::pair("model.layers", size->layers),
                                   std::pair("model.heads", size->heads)}) {
    const auto* knob = loading.knobs.find(key);
    auto& source = loading.loaded.sources[key];
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

void finish(Loading& loading, std::span<const Override> overrides,
            const Environment& environment) {
  apply_environment(loading, environment);
  for (const auto& [key, value] : overrides) {
    apply_override(loading, {key, value}, {Origin::override_, str(key, "=", value)});
  }
  loading.problems.throw_if_any();
  settle_size(loading);
  loading.problems.throw_if_any();
  settle_length(loading.loaded);
  validate(loading.loaded);
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
  Loading loading(loaded);
  apply_file(loading, recipe);
  finish(loading, overrides, environment);
  return loaded;
}

Loaded defaults(std::span<const Override> overrides, const Environment& environment) {
  Loaded loaded;
  Loading loading(loaded);
  finish(loading, overrides, environment);
  return loaded;
}

void set(Loaded& loaded, const Override& given, const Source& source) {
  Loading loading(loaded);
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

std::vector<std::string> keys() {
  Config config;
  std::vector<std::string> keys;
  for (const auto& knob : detail::knobs_of(config).all) keys.push_back(knob.key);
  return keys;
}

}  // namespace lockstep::config
