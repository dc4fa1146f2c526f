#include "lockstep/storage/detail/manifest_json.h"

#include "lockstep/base/error.h"

namespace lockstep::storage {
namespace {

constexpr std::size_t kDigestHexDigits = 32;

// Only a whole number: get<>() would round a real one in silence.
std::int64_t integer(const Json& json) {
  if (!json.is_number_integer()) {
    throw Error(Fault::io, "'", json.dump(), "' stands where a whole number should");
  }
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) {
    throw Error(Fault::io, json.dump(), " is too large");
  }
  return json.get<std::int64_t>();
}

std::vector<std::int64_t> integers(const Json& json) {
  std::vector<std::int64_t> result;
  for (const auto& item : json.get_ref<const Json::array_t&>()) {
    result.push_back(integer(item));
  }
  return result;
}

std::vector<Digest> digests_from(const std::string& hex) {
  std::vector<Digest> digests;
  for (std::size_t at = 0; at < hex.size(); at += kDigestHexDigits) {
    const auto digest =
        digest_from_hex(std::string_view(hex).substr(at, kDigestHexDigits));
    if (!digest) throw Error(Fault::io, "a digest of a block is no digest");
    digests.push_back(*digest);
  }
  return digests;
}

}  // namespace

Json json_of(const FileRecord& file) {
  std::string blocks;
  for (const auto& block : file.blocks) blocks += to_hex(block);
  return {{"name", file.name},
          {"size", file.size},
          {"digest", to_hex(file.digest())},
          {"blocks", blocks}};
}

FileRecord file_from(const Json& json) {
  FileRecord file{.name = json.at("name").get<std::string>(),
                  .size = integer(json.at("size")),
                  .blocks = digests_from(json.at("blocks").get<std::string>())};
  if (to_hex(file.digest()) != json.at("digest").get<std::string>()) {
    throw Error(Fault::io, "the digest of '", file.name, "' is not that of its blocks");
  }
  return file;
}

Json json_of(const TensorRecord& tensor, const std::vector<FileRecord>& files) {
  Json json = {{"name", tensor.name}, {"dtype", tensor.dtype}, {"shape", tensor.shape}};
  if (!tensor.order.empty()) json["order"] = tensor.order;
  json["pieces"] = Json::array();
  for (const auto& piece : tensor.pieces) {
    json["pieces"].push_back({{"file", files.at(piece.file).name},
                              {"begin", piece.begin},
                              {"count", piece.count},
                              {"offset", piece.offset}});
  }
  return json;
}

TensorRecord tensor_from(const Json& json,
                         const std::map<std::string, std::size_t>& files) {
  TensorRecord tensor{.name = json.at("name").get<std::string>(),
                      .dtype = json.at("dtype").get<std::string>(),
                      .shape = integers(json.at("shape")),
                      .order = {},
                      .pieces = {}};
  if (json.contains("order")) tensor.order = integers(json.at("order"));
  for (const auto& piece : json.at("pieces").get_ref<const Json::array_t&>()) {
    const auto name = piece.at("file").get<std::string>();
    const auto file = files.find(name);
    if (file == files.end()) {
      throw Error(Fault::io, "it is in a file '", name, "' that is not listed");
    }
    tensor.pieces.push_back({.file = file->second,
                             .begin = integer(piece.at("begin")),
                             .count = integer(piece.at("count")),
                             .offset = integer(piece.at("offset"))});
  }
  return tensor;
}

std::map<std::string, std::size_t> indices_of(const std::vector<FileRecord>& files) {
  std::map<std::string, std::size_t> indices;
  for (std::size_t i = 0; i < files.size(); ++i) indices.emplace(files[i].name, i);
  return indices;
}

}  // namespace lockstep::storage
