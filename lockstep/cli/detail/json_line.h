#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::cli {

// One line of JSON. Names of files need not be UTF-8: bytes that are not are replaced.
inline std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace lockstep::cli
