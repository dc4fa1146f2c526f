#pragma once

#include <nlohmann/json.hpp>

#include "lockstep/storage/manifest.h"

// Parts of manifest.json that ranks send each other, too. Reading throws nlohmann's
// exceptions, and Error for JSON that is no valid part.
namespace lockstep::storage {

using Json = nlohmann::ordered_json;

Json json_of(const FileRecord& file);
FileRecord file_from(const Json& json);

// `files` turns the indices of pieces into names and back.
Json json_of(const TensorRecord& tensor, const std::vector<FileRecord>& files);
TensorRecord tensor_from(const Json& json,
                         const std::map<std::string, std::size_t>& files);

std::map<std::string, std::size_t> indices_of(const std::vector<FileRecord>& files);

}  // namespace lockstep::storage
