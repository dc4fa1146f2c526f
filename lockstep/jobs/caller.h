#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::jobs {

using Environment = std::vector<std::pair<std::string, std::string>>;

// Returns the value of a variable; nothing if it is not set.
std::optional<std::string> find_variable(const Environment& environment,
                                         std::string_view name);

// The process that wants something done, a command or a server: its environment, its
// own path, and where sentences for a user go.
struct Caller {
  Environment environment;
  std::string executable;    // the worker lies beside it
  std::string command_line;  // for run.json
  std::function<void(std::string_view sentence)> say;
  std::function<void(std::string_view sentence)> warn;

  std::optional<std::string> variable(std::string_view name) const {
    return find_variable(environment, name);
  }
};

}  // namespace lockstep::jobs
