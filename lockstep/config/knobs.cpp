#include "lockstep/config/detail/knobs.h"

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/server.h"

namespace lockstep::config::detail {
namespace {

// The one visitor of describe(); all else works on the list that it makes.
class Collector {
 public:
  explicit Collector(Knobs& knobs) : knobs_(knobs) {}

  template <typename Members>
  void section(std::string_view name, Members& members, std::string_view help) {
    knobs_.sections.push_back({name, help});
    describe(members, *this);
  }

  template <typename T>
  void field(std::string_view name, T& member, const Field& about) {
    const auto section = knobs_.sections.back().name;
    knobs_.all.push_back(
        {.key = str(section, ".", name),
         .section = section,
         .name = name,
         .field = about,
         .type = type_of(member, about),
         .read = [&member,
                  about](const Node& n) { return detail::read(n, about, member); },
         .write = [&member, about] { return detail::write(member, about); }});
  }

 private:
  Knobs& knobs_;
};

std::string quoted_list(const std::vector<std::string>& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    list += (i == 0 ? "'" : i + 1 == words.size() ? " or '" : ", '") + words[i] + "'";
  }
  return list;
}

// Returns the keys called `name` in any section.
std::vector<std::string> namesakes(const Knobs& knobs, std::string_view name) {
  std::vector<std::string> keys;
  for (const auto& knob : knobs.all) {
    if (knob.name == name) keys.push_back(knob.key);
  }
  return keys;
}

// Returns the key whose last part is closest to `name`, over all sections.
std::string closest_anywhere(const Knobs& knobs, std::string_view name) {
  std::vector<std::string> names;
  for (const auto& knob : knobs.all) names.emplace_back(knob.name);
  const auto guess = text::closest(name, names);
  if (!guess) return "";
  return str("; did you mean ", quoted_list(namesakes(knobs, *guess)), "?");
}

}  // namespace

const Knob* Knobs::find(std::string_view key) const noexcept {
  for (const auto& knob : all) {
    if (knob.key == key) return &knob;
  }
  return nullptr;
}

bool Knobs::has_section(std::string_view name) const noexcept {
  for (const auto& section : sections) {
    if (section.name == name) return true;
  }
  return false;
}

std::vector<std::string> Knobs::names_in(std::string_view section) const {
  std::vector<std::string> names;
  for (const auto& knob : all) {
    if (knob.section == section) names.emplace_back(knob.name);
  }
  return names;
}

Knobs knobs_of(Config& config) {
  Knobs knobs;
  Collector collector(knobs);
  describe(config, collector);
  return knobs;
}

Knobs knobs_of(ServerConfig& config) {
  Knobs knobs;
  Collector collector(knobs);
  describe(config, collector);
  return knobs;
}

std::string unknown_key(const Knobs& knobs, std::string_view section,
                        std::string_view name) {
  const auto what = str("unknown key '", section, ".", name, "'");
  const auto names = knobs.names_in(section);
  if (const auto hint = foreign_hint(knobs, name); !hint.empty()) return what + hint;
  if (const auto guess = text::closest(name, names)) {
    return str(what, "; did you mean '", section, ".", *guess, "'?");
  }
  const auto guess = closest_anywhere(knobs, name);
  if (!guess.empty()) return what + guess;
  return str(what, "; '", section, "' has ", text::join(names, ", "));
}

std::string unknown_section_of(const Knobs& knobs, std::string_view key) {
  const auto dot = key.find('.');
  const auto section = key.substr(0, dot);
  const auto name = key.substr(dot + 1);
  const auto what = str("unknown section '", section, "'");
  std::vector<std::string> sections;
  for (const auto& one : knobs.sections) sections.emplace_back(one.name);
  // A section that is only misspelt has the key that was meant.
  const auto guess = text::closest(section, sections);
  if (guess && knobs.find(str(*guess, ".", name)) != nullptr) {
    return str(what, "; did you mean '", *guess, ".", name, "'?");
  }
  const auto keys = namesakes(knobs, name);
  if (!keys.empty()) return str(what, "; did you mean ", quoted_list(keys), "?");
  if (const auto hint = foreign_hint(knobs, name); !hint.empty()) return what + hint;
  return unknown_section(knobs, section);
}

std::string unknown_section(const Knobs& knobs, std::string_view name) {
  const auto what = str("unknown section '", name, "'");
  if (knobs.find(name) != nullptr) {
    const auto dot = name.find('.');
    return str(what, "; sections nest: write '", name.substr(0, dot),
               ":' and below it '", name.substr(dot + 1), ":'");
  }
  if (const auto hint = foreign_hint(knobs, name); !hint.empty()) return what + hint;
  std::vector<std::string> names;
  for (const auto& section : knobs.sections) names.emplace_back(section.name);
  if (const auto guess = text::did_you_mean(name, names); !guess.empty()) {
    return what + guess;
  }
  const auto guess = closest_anywhere(knobs, name);
  if (!guess.empty()) return what + guess;
  return str(what, "; there are ", text::join(names, ", "));
}

}  // namespace lockstep::config::detail
