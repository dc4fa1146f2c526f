#include "lockstep/monitor/detail/knobs.h"

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::monitor::detail {
namespace {

// Without the comment that says where it came from, and without quotes.
std::string value_of(std::string_view rest) {
  const char quote = rest.empty() ? '\0' : rest.front();
  if (quote == '"' || quote == '\'') {
    const auto end = rest.find(quote, 1);
    return std::string(rest.substr(1, end == std::string_view::npos ? end : end - 1));
  }
  return std::string(text::trim(rest.substr(0, rest.find(" #"))));
}

}  // namespace

std::map<std::string, std::string> read_knobs(const files::Path& config_yaml) {
  std::map<std::string, std::string> knobs;
  std::string section, content;
  try {
    content = files::read(config_yaml, 1 << 20);
  } catch (const Error&) {
    return knobs;
  }
  for (const auto& line : text::split(content, '\n')) {
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

}  // namespace lockstep::monitor::detail
