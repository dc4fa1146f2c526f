#include "lockstep/cli/detail/human_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/planner/report.h"

namespace lockstep::cli {
namespace {

// Returns the name without its unit, with blanks.
std::string without(std::string name, std::string_view unit) {
  name.resize(name.size() - unit.size());
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

// Returns "" for a name without a unit.
std::string with_unit(const std::string& name, double value) {
  if (name.ends_with("_bytes")) {
    return str(without(name, "_bytes"), " ",
               units::format_bytes(static_cast<std::int64_t>(value)));
  }
  if (name == "step_seconds" || name == "seconds") {
    const auto what = name == "seconds" ? "time " : "step time ";
    return what + planner::seconds_text(value);
  }
  if (name.ends_with("_seconds")) {
    return str(without(name, "_seconds"), " ", planner::seconds_text(value));
  }
  if (name.ends_with("_ratio")) {
    return fmt::format("{} {:.1f} %", without(name, "_ratio"), 100 * value);
  }
  if (name.ends_with("_per_second")) {
    return str(units::format_rate(value), " ", without(name, "_per_second"), "/s");
  }
  return "";
}

// Breaks a text into parts of at most `room` columns, between words where it can.
std::vector<std::string> broken(const std::string& text, std::size_t room) {
  std::vector<std::string> parts{""};
  for (const auto& word : text::split(text, ' ')) {
    auto rest = std::string(word);
    const auto used = text::columns(parts.back());
    const bool fits = used == 0 || used + 1 + text::columns(rest) <= room;
    if (!fits) parts.emplace_back();
    if (!parts.back().empty()) parts.back() += ' ';
    while (text::columns(rest) > room) {
      std::size_t end = 0;
      for (std::size_t columns = 0; end < rest.size(); ++end) {
        const bool begins = (static_cast<unsigned char>(rest[end]) & 0xC0) != 0x80;
        if (begins && ++columns > room) break;
      }
      parts.back() = rest.substr(0, end);
      rest.erase(0, end);
      parts.emplace_back();
    }
    parts.back() += rest;
  }
  return parts;
}

}  // namespace

std::string human_text(const run::NamedValue& field) {
  if (const auto* word = std::get_if<std::string>(&field.value)) {
    return field.name + " " + *word;
  }
  if (const auto* flag = std::get_if<bool>(&field.value)) {
    return field.name + (*flag ? " yes" : " no");
  }
  const auto* integer = std::get_if<std::int64_t>(&field.value);
  const double value = integer != nullptr ? static_cast<double>(*integer)
                                          : std::get<double>(field.value);
  if (auto text = with_unit(field.name, value); !text.empty()) return text;
  return integer != nullptr ? fmt::format("{} {}", field.name, *integer)
                            : fmt::format("{} {:.6g}", field.name, value);
}

std::vector<std::string> wrapped(const std::vector<std::string>& pieces,
                                 std::size_t indent, std::size_t width) {
  const auto room = std::max<std::size_t>(1, width > indent ? width - indent : 1);
  std::vector<std::string> lines{""};
  std::size_t used = 0;  // of the last line, without its indent
  for (const auto& piece : pieces) {
    for (const auto& part : broken(piece, room)) {
      const auto columns = text::columns(part);
      if (used > 0 && used + 2 + columns > room) {
        lines.push_back(std::string(indent, ' '));
        used = 0;
      }
      lines.back() += (used > 0 ? "  " : "") + part;
      used += columns + (used > 0 ? 2 : 0);
    }
  }
  return lines;
}

}  // namespace lockstep::cli
