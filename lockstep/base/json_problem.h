#pragma once

#include <exception>
#include <string>

#include <nlohmann/json.hpp>

#include "lockstep/base/str.h"

namespace lockstep {

// Returns an exception of the JSON library as a text for users: "it is not JSON from
// byte 12 on", "key 'pid' not found"; other exceptions' texts stay as they are. Only
// for sources, as the library's header is.
inline std::string json_problem(const std::exception& error) {
  if (const auto* parse = dynamic_cast<const nlohmann::json::parse_error*>(&error)) {
    return str("it is not JSON from byte ", parse->byte, " on");
  }
  const std::string text = error.what();
  const bool tagged = text.rfind("[json.exception.", 0) == 0;
  const auto end = tagged ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace lockstep
