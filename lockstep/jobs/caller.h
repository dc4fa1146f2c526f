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

// A request to another service, and its answer.
struct HttpQuestion {
  std::string method;
  std::string url;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
};
struct HttpAnswer {
  int status = 0;
  std::string body;
};

// The process that wants something done, a command or a server: its environment, its
// own path, and where sentences for a user go.
struct Caller {
  Environment environment;
  std::string executable;    // the worker lies beside it
  std::string command_line;  // for run.json
  std::function<void(std::string_view sentence)> say;
  std::function<void(std::string_view sentence)> warn;
  // Throws Fault::io if there is no answer. Empty where nobody is to be asked.
  std::function<HttpAnswer(const HttpQuestion&)> ask_http = {};

  std::optional<std::string> variable(std::string_view name) const {
    return find_variable(environment, name);
  }
};

}  // namespace lockstep::jobs
