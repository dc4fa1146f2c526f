#include "lockstep/service/remote_recipe.h"

#include <algorithm>
#include <array>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/service/refusal.h"

namespace lockstep::service {
namespace {

// A value of an override is YAML, and a path may hold anything.
std::string quoted_value(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "''" : std::string(1, c);
  return result + "'";
}

// Knobs whose value can be an upload or something that the server offers.
constexpr std::array<std::string_view, 5> kInputKnobs{
    "data.dir", "data.tokenizer", "lora.weights", "model.file", "model.weights"};

void refuse_local(const config::Loaded& loaded) {
  for (const auto& key : config::local_keys()) {
    const auto source = loaded.sources.find(key);
    if (source == loaded.sources.end() ||
        source->second.origin == config::Origin::standard ||
        source->second.origin == config::Origin::override_) {
      continue;
    }
    throw Refusal(Refused::invalid, config::place_of(source->second), ": ", key,
                  " names something of the machine that trains, so a job may not set "
                  "it; name an upload, or something that the server offers, in "
                  "\"inputs\"");
  }
}

std::string place_of_input(const std::string& knob, const std::string& name,
                           const FindInput& find_input) {
  if (std::find(kInputKnobs.begin(), kInputKnobs.end(), knob) == kInputKnobs.end()) {
    const std::vector<std::string> known(kInputKnobs.begin(), kInputKnobs.end());
    const auto hint = text::did_you_mean(knob, known);
    throw Refusal(Refused::invalid, "inputs: '", knob, "' takes none",
                  hint.empty() ? "; these do: " + text::join(known, ", ") : hint);
  }
  if (auto place = find_input(knob, name)) return *place;
  throw Refusal(Refused::invalid, "inputs: there is no '", name, "' for ", knob,
                "; upload a file (POST /v1/files), or see GET /v1/inputs");
}

// Errors go to the sender, who is not told where things are.
std::string without_places(std::string text, const CheckedRecipe& checked) {
  for (const auto& [knob, value] : checked.overrides) {
    for (auto at = text.find(value); at != std::string::npos; at = text.find(value)) {
      text.replace(at, value.size(), "...");
    }
    const auto bare = value.substr(1, value.size() - 2);
    for (auto at = text.find(bare); at != std::string::npos; at = text.find(bare)) {
      text.replace(at, bare.size(), "...");
    }
  }
  return text;
}

}  // namespace

CheckedRecipe check_remote(const RemoteRecipe& recipe, const FindInput& find_input) {
  CheckedRecipe checked;
  std::vector<config::Override> overrides;
  for (const auto& [knob, name] : recipe.inputs) {
    const auto place = quoted_value(place_of_input(knob, name, find_input));
    overrides.push_back({knob, place});
    checked.overrides.emplace_back(knob, place);
  }
  try {
    checked.loaded = config::load_text("recipe", recipe.text, overrides);
  } catch (const Error& error) {
    throw Refusal(Refused::invalid, without_places(error.what(), checked));
  }
  refuse_local(checked.loaded);
  return checked;
}

void check_ranks(const config::Config& config, const Resources& resources) {
  const auto& ranks = config.parallel.ranks;
  const int devices = std::max(resources.cores, resources.gpus);
  if (ranks.is_auto() || ranks.value() <= devices) return;
  throw Refusal(Refused::invalid, "parallel.ranks=", ranks.value(),
                " is more than the devices of the job; ask for as many "
                "(resources.gpus, or resources.cores on CPUs; now ",
                resources.gpus, " and ", resources.cores, ")");
}

}  // namespace lockstep::service
