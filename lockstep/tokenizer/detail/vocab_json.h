#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lockstep/tokenizer/detail/formats.h"

// Shared by the two readers of JSON; only for sources, as the library's header is.
namespace lockstep::tokenizer {

// Throws Fault::io with the line where it is not JSON.
nlohmann::json parse_json(std::string_view text, const std::string& path);

// Reads {"token": id, ...} into tables.tokens.
void read_tokens(const nlohmann::json& vocab, LetterTables& tables);

}  // namespace lockstep::tokenizer
