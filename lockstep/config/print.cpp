#include "lockstep/config/print.h"

#include <algorithm>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/detail/knobs.h"

namespace lockstep::config {
namespace {

using detail::Knob;

const Source& source_of(const Loaded& loaded, const Knob& knob) {
  static const Source kStandard;
  const auto found = loaded.sources.find(knob.key);
  return found == loaded.sources.end() ? kStandard : found->second;
}

// Returns the text as UTF-8 on one line, as a recipe needs it, whatever a path or a
// reason holds.
std::string one_line(std::string text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  while (const auto at = text::first_invalid_utf8(text)) {
    text.replace(*at, 1, kReplacement);
  }
  for (auto& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

std::string described(const Source& source) {
  const std::string origin(name_of(source.origin));
  if (source.where.empty()) return origin;
  const bool is_reason = source.origin == Origin::planner;
  return one_line(str(origin, is_reason ? ": " : " ", source.where));
}

// Comments start in the column after the longest ordinary line.
std::size_t comment_column(const detail::Knobs& knobs) {
  constexpr std::size_t kFarthest = 40;
  std::size_t column = 0;
  for (const auto& knob : knobs.all) {
    const auto width = knob.name.size() + text::columns(knob.write().yaml) + 4;
    if (width <= kFarthest) column = std::max(column, width);
  }
  return column;
}

}  // namespace

std::string to_yaml(const Loaded& loaded, bool with_sources) {
  auto copy = loaded.config;
  const auto knobs = detail::knobs_of(copy);
  const auto column = comment_column(knobs);
  std::string result;
  std::string_view section;
  for (const auto& knob : knobs.all) {
    if (knob.section != section) {
      result += str(section.empty() ? "" : "\n", knob.section, ":\n");
      section = knob.section;
    }
    auto line = str("  ", knob.name, ": ", knob.write().yaml);
    if (with_sources) {
      const auto width = text::columns(line);
      line += std::string(width < column ? column - width : 0, ' ');
      line += " # " + described(source_of(loaded, knob));
    }
    result += line + "\n";
  }
  return result;
}

std::string to_json(const Loaded& loaded) {
  auto copy = loaded.config;
  const auto knobs = detail::knobs_of(copy);
  std::string result = "{";
  std::string_view section;
  for (const auto& knob : knobs.all) {
    const bool first = knob.section != section;
    if (first)
      result += str(section.empty() ? "" : "\n  },", "\n  \"", knob.section, "\": {");
    section = knob.section;
    const auto& source = source_of(loaded, knob);
    result += str(first ? "" : ",", "\n    \"", knob.name,
                  "\": {\"value\": ", knob.write().json, ", \"source\": \"",
                  name_of(source.origin),
                  "\", \"where\": ", detail::quoted(source.where), "}");
  }
  return result + "\n  }\n}\n";
}

std::string to_table(const Loaded& loaded) {
  auto copy = loaded.config;
  std::vector<std::vector<std::string>> rows = {{"knob", "value", "from"}};
  for (const auto& knob : detail::knobs_of(copy).all) {
    rows.push_back({knob.key, knob.write().yaml, described(source_of(loaded, knob))});
  }
  return text::table(rows);
}

}  // namespace lockstep::config
