#include "lockstep/run/knobs.h"

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::run {
namespace {

// Returns the value without quotes and the comment that says where it came from.
std::string value_of(std::string_view rest) {
  const char quote = rest.empty() ? '\0' : rest.front();
  if (quote == '"' || quote == '\'') {
    const auto end = rest.find(quote, 1);
    return std::string(rest.substr(1, end == std::string_view::npos ? end : end - 1));
  }
  return std::string(text::trim(rest.substr(0, rest.find(" #"))));
}

}  // namespace

std::map<std::string, std::string> parse_knobs(std::string_view config_yaml) {
  std::map<std::string, std::string> knobs;
  std::string section;
  for (const auto& line : text::split(config_yaml, '\n')) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || line[0] == '#') continue;
    const auto name = std::string(text::trim(std::string_view(line).substr(0, colon)));
    if (line[0] != ' ') {
      section = name;
    } else if (!section.empty()) {
      knobs[section + "." + name] =
          value_of(text::trim(std::string_view(line).substr(colon + 1)));
    }
  }
  return knobs;
}

std::map<std::string, std::string> read_knobs(const files::Path& config_yaml) {
  try {
    return parse_knobs(files::read(config_yaml, 1 << 20));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace lockstep::run
