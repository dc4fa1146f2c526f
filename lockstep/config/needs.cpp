#include "lockstep/config/needs.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/detail/knobs.h"

namespace lockstep::config {
namespace {

std::vector<std::string_view> split_at(std::string_view text, std::string_view word) {
  std::vector<std::string_view> parts;
  for (auto at = text.find(word); at != std::string_view::npos; at = text.find(word)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + word.size());
  }
  parts.push_back(text);
  return parts;
}

// "optim.name", "=", "sgd|lion".
struct Condition {
  std::string_view key, sign, values;
};

Condition condition_of(std::string_view text) {
  const auto at = text.find_first_of("!=>");
  const auto length = text[at] == '!' ? 2U : 1U;
  return {text.substr(0, at), text.substr(at, length), text.substr(at + length)};
}

// Returns the words of a list, or the one that a value is; quotes are the recipe's.
std::vector<std::string> words_of(std::string_view value) {
  std::vector<std::string> words;
  for (const auto& word : text::split(value, ',')) {
    const auto first = word.find_first_not_of("[ \"'");
    const auto last = word.find_last_not_of("] \"'");
    words.push_back(first == std::string::npos || last == std::string::npos
                        ? ""
                        : word.substr(first, last + 1 - first));
  }
  return words;
}

class Judge {
 public:
  explicit Judge(const detail::Knobs& knobs) : knobs_(knobs) {}

  bool holds(std::string_view when) const {
    for (const auto group : split_at(when, " or ")) {
      const auto conditions = split_at(group, " and ");
      if (std::all_of(conditions.begin(), conditions.end(),
                      [this](auto text) { return holds(condition_of(text)); })) {
        return true;
      }
    }
    return false;
  }

  // Returns "optim.name is adamw" for each knob whose condition does not hold.
  std::string as_it_is(std::string_view when) const {
    std::vector<std::string> parts;
    for (const auto group : split_at(when, " or ")) {
      for (const auto text : split_at(group, " and ")) {
        const auto condition = condition_of(text);
        if (holds(condition)) continue;
        auto part = str(condition.key, " is ", value_of(condition.key));
        const bool is_said = std::find(parts.begin(), parts.end(), part) != parts.end();
        if (!is_said) parts.push_back(std::move(part));
      }
    }
    return text::join(parts, " and ");
  }

  std::string value_of(std::string_view key) const {
    return knobs_.find(key)->write().yaml;
  }

 private:
  bool holds(const Condition& condition) const {
    const auto value = value_of(condition.key);
    if (condition.sign == ">") {
      // strtod() takes the number of "25MiB" and "30s".
      return std::strtod(value.c_str(), nullptr) >
             text::to_double(condition.values).value();
    }
    const auto words = words_of(value);
    const auto wanted = text::split(condition.values, '|');
    const bool found = std::find_first_of(words.begin(), words.end(), wanted.begin(),
                                          wanted.end()) != words.end();
    return found == (condition.sign == "=");
  }

  const detail::Knobs& knobs_;
};

bool was_set(const Source& source) {
  return source.origin != Origin::standard && source.origin != Origin::planner;
}

// Returns whether a recipe names every knob; those of its `auto` are the planner's now.
bool names_all(const Loaded& loaded) {
  return std::none_of(
      loaded.sources.begin(), loaded.sources.end(),
      [](const auto& entry) { return entry.second.origin == Origin::standard; });
}

}  // namespace

std::vector<Need> needs() {
  Config config;
  std::vector<Need> needs;
  for (const auto& knob : detail::knobs_of(config).all) {
    if (!knob.field.needs.empty()) needs.push_back({knob.key, knob.field.needs});
  }
  return needs;
}

std::vector<std::string> unused_knobs(const Loaded& resolved) {
  auto copy = resolved.config;
  Config standard;
  const auto knobs = detail::knobs_of(copy), defaults = detail::knobs_of(standard);
  const Judge judge(knobs), before(defaults);
  const bool is_complete = names_all(resolved);
  std::vector<std::string> lines;
  for (const auto& need : needs()) {
    const auto source = resolved.sources.find(need.key);
    if (source == resolved.sources.end() || !was_set(source->second)) continue;
    const auto value = judge.value_of(need.key);
    if (is_complete && value == before.value_of(need.key)) continue;
    if (judge.holds(need.when)) continue;
    const auto place =
        source->second.origin == Origin::override_ ? "" : place_of(source->second);
    lines.push_back(str(place, place.empty() ? "" : ": ", need.key, "=", value,
                        " is not used: it needs ", need.when, ", and ",
                        judge.as_it_is(need.when)));
  }
  return lines;
}

}  // namespace lockstep::config
