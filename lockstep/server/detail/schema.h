#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace lockstep::server {

// Returns what is wrong with a value by a JSON schema, beginning with its place
// ("resources.gpus: ..."); "" if nothing is. Knows the words that our schemas use:
// $ref, type, enum, properties, required, additionalProperties, items, minItems,
// maxItems, minimum, maximum, minLength, maxLength, pattern (of ids only).
std::string schema_problem(const nlohmann::ordered_json& value,
                           const nlohmann::ordered_json& schema,
                           const nlohmann::ordered_json& components);

}  // namespace lockstep::server
