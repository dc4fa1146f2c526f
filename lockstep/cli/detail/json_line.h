#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::cli {

// Returns one line of JSON. Bytes that are not UTF-8 (names of files) are replaced.
inline std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace lockstep::cli
