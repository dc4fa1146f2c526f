#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/config/resolved.h"

namespace lockstep::config {

// The source that set a knob.
enum class Origin {
  standard,  // "default": the value in its struct
  recipe,
  environment,
  override_,  // "override": key=value on the command line
  planner,
};

constexpr std::array<std::string_view, 5> names_of(Origin) {
  return {"default", "recipe", "environment", "override", "planner"};
}

struct Source {
  Origin origin = Origin::standard;
  // recipe: "recipes/x.yaml:12:7", environment: "LOCKSTEP_OPTIM_LR", override:
  // "optim.lr=3e-4", planner: its reason; empty for a default.
  std::string where;
};

// Returns the text before the colon in an error about a knob with this source:
// "x.yaml:3:7", "LOCKSTEP_OPTIM_LR", "override 'optim.lr=3'"; "" for a default or a
// planner's choice.
std::string place_of(const Source& source);

struct Loaded {
  Config config;
  std::map<std::string, Source> sources;  // one for every key, as "optim.lr"
  std::string recipe;                     // its path, "" if there was none
};

// `value` is written as in a recipe: 3e-4, [console, jsonl], auto.
struct Override {
  std::string key;
  std::string value;
};

// Parses "optim.lr=3e-4"; anything else is Fault::config.
Override parse_override(std::string_view text);

// Names and values of variables. LOCKSTEP_<SECTION>_<KEY> sets a knob,
// LOCKSTEP_OPTIM_LR for example; an empty value counts as unset, and a variable that
// names no section is not ours.
using Environment = std::vector<std::pair<std::string, std::string>>;

// Loads a recipe. An override wins over the environment, that over the recipe, that
// over the defaults. All problems are reported together, each on a line that starts
// with its place (file:line:column). The recipe "-" is standard input. Throws
// Fault::config, and Fault::io if the file can not be read. The result has passed
// validate().
Loaded load(const std::filesystem::path& recipe, std::span<const Override> overrides,
            const Environment& environment);

// Loads a recipe that is no file: one that came over a network, for example. `name`
// stands for it in errors. Nothing is read from the environment.
Loaded load_text(const std::string& name, std::string_view content,
                 std::span<const Override> overrides);

// Loads without a recipe.
Loaded defaults(std::span<const Override> overrides, const Environment& environment);

// Sets one knob from its text and remembers its source; Fault::config if the key is
// unknown or the value is not for it. Does not validate().
void set(Loaded& loaded, const Override& given, const Source& source);

// Returns the knob's value as a recipe spells it; Fault::config if there is no such
// key.
std::string get(const Loaded& loaded, std::string_view key);

// Throws Fault::config for knobs that contradict each other, with the arithmetic, and
// for features that this version does not have.
void validate(const Loaded& loaded);

// Returns the keys of the knobs that name files, addresses or programs
// (Field::is_local).
std::vector<std::string> local_keys();

// Returns every key, in the order of the sections: "run.dir", ...
std::vector<std::string> keys();

// Returns the keys whose value is `auto`.
inline std::vector<std::string> auto_keys(const Loaded& loaded) {
  return auto_keys(loaded.config);
}

}  // namespace lockstep::config
