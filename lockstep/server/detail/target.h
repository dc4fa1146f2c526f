#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::server {

// The target of a request, decoded once.
struct Target {
  std::vector<std::string> segments;  // of the path
  std::map<std::string, std::string> query;
};

// Returns nothing for a target that is no plain path: with an encoded slash or NUL, a
// segment "." or "..", a control character, a backslash, a semicolon, an escape that is
// none, or without a slash at its begin.
std::optional<Target> parse_target(std::string_view target);

// Returns whether a text can be an id: letters, digits, -, _ and ., at most 80, not
// beginning with a dot.
bool is_id(std::string_view text);

}  // namespace lockstep::server
