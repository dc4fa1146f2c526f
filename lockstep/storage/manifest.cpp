#include "lockstep/storage/manifest.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/base/text.h"
#include "lockstep/storage/detail/manifest_json.h"

namespace lockstep::storage {
namespace {

constexpr std::string_view kHashName = "xxh3-128";

// The digest is the first line, so that it can be checked before anything is parsed.
std::string first_line(std::string_view rest) {
  return str("{\"digest\": \"", to_hex(digest_of(rest)), "\",\n");
}

template <typename Items, typename ToJson>
std::string array_text(const Items& items, ToJson to_json) {
  std::string text = "[";
  for (const auto& item : items) {
    text += str(text.size() > 1 ? ",\n  " : "\n  ", to_json(item).dump());
  }
  return text + "]";
}

Json metric_json(const WatchedMetric& metric) {
  return {{"name", metric.name},
          {"value", metric.value},
          {"better", metric.larger_is_better ? "larger" : "smaller"}};
}

WatchedMetric metric_from(const Json& json) {
  const auto better = json.at("better").get<std::string>();
  if (better != "larger" && better != "smaller") {
    throw Error(Fault::io, "better: '", better, "' is neither larger nor smaller");
  }
  return {.name = json.at("name").get<std::string>(),
          .value = json.at("value").get<double>(),
          .larger_is_better = better == "larger"};
}

// A resumed run continues with state.steps, if there is one: it must be the manifest's
// step.
void check_state(const Json& json, std::int64_t step) {
  const auto& state = json.at("state");
  if (!state.is_object()) throw Error(Fault::io, "state is not a JSON object");
  const auto steps = state.find("steps");
  if (steps == state.end() || *steps == step) return;
  throw Error(Fault::io, "state.steps is ", steps->dump(), ", but step is ", step);
}

// Rethrows exceptions of `read` with the name of the tensor, which is the `index`-th.
template <typename Read>
TensorRecord named_tensor(const Json& json, std::size_t index, const Read& read) {
  const auto name = json.is_object() ? json.find("name") : json.end();
  const auto what = name != json.end() && name->is_string()
                        ? str("tensor '", name->template get<std::string>(), "'")
                        : str("tensors[", index, "]");
  try {
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    throw Error(Fault::io, what, ": ", json_problem(error));
  } catch (const Error& error) {
    throw Error(error.fault(), what, ": ", error.what());
  }
}

Manifest from_json(const Json& json) {
  Manifest manifest{.step = json.at("step").get<std::int64_t>(),
                    .time = json.at("time").get<std::string>(),
                    .world_size = json.at("world_size").get<std::int64_t>(),
                    .metric = {},
                    .state = json.at("state").dump(),
                    .config = json.at("config").get<std::string>(),
                    .versions = {},
                    .block_bytes = json.at("block_bytes").get<std::int64_t>(),
                    .files = {},
                    .tensors = {}};
  check_state(json, manifest.step);
  if (json.contains("metric")) manifest.metric = metric_from(json.at("metric"));
  json.at("versions").get_to(manifest.versions);
  for (const auto& file : json.at("files").get_ref<const Json::array_t&>()) {
    manifest.files.push_back(file_from(file));
  }
  const auto indices = indices_of(manifest.files);
  for (const auto& tensor : json.at("tensors").get_ref<const Json::array_t&>()) {
    manifest.tensors.push_back(
        named_tensor(tensor, manifest.tensors.size(),
                     [&](const Json& one) { return tensor_from(one, indices); }));
  }
  if (json.at("config_digest").get<std::string>() != to_hex(manifest.config_digest())) {
    throw Error(Fault::io, "config_digest is not that of config");
  }
  return manifest;
}

void check_version(const Json& json, const std::string& place) {
  const auto format = json.at("format").get<std::int64_t>();
  if (format > kManifestFormat) {
    throw Error(Fault::config, place, ": format ", format, " is newer than ",
                kManifestFormat,
                ", the newest that this lockstep reads; use a newer one");
  }
  if (format != kManifestFormat || json.at("hash").get<std::string>() != kHashName) {
    throw Error(Fault::io, place, ": format ", format, " with hash ",
                json.at("hash").dump(), " never was");
  }
}

}  // namespace

std::int64_t TensorRecord::num_elements() const {
  return storage::num_elements(shape).value_or(0);
}

std::int64_t TensorRecord::num_bytes() const {
  return storage::num_bytes(dtype, num_elements()).value_or(0);
}

const TensorRecord* Manifest::find(std::string_view name) const {
  const auto found =
      std::lower_bound(tensors.begin(), tensors.end(), name,
                       [](const TensorRecord& tensor, std::string_view word) {
                         return tensor.name < word;
                       });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

std::int64_t Manifest::total_bytes() const {
  std::int64_t sum = 0;
  for (const auto& file : files) sum += file.size;
  return sum;
}

std::string entry_name(const TensorRecord& tensor, const PieceRecord& piece) {
  if (tensor.order.empty() && piece.begin == 0 &&
      piece.count == tensor.num_elements()) {
    return tensor.name;
  }
  return str(tensor.name, "[", piece.begin, ":", piece.begin + piece.count, "]");
}

std::string to_text(const Manifest& manifest) {
  const auto field = [](std::string_view name, const Json& value) {
    return str("\"", name, "\": ", value.dump(), ",\n");
  };
  std::string text = field("format", kManifestFormat) + field("hash", kHashName) +
                     field("step", manifest.step) + field("time", manifest.time) +
                     field("world_size", manifest.world_size);
  if (manifest.metric) text += field("metric", metric_json(*manifest.metric));
  text += field("state", Json::parse(manifest.state)) +
          field("versions", manifest.versions) +
          field("config_digest", to_hex(manifest.config_digest())) +
          field("config", manifest.config) + field("block_bytes", manifest.block_bytes);
  text += str(
      "\"files\": ",
      array_text(manifest.files, [](const auto& file) { return json_of(file); }),
      ",\n\"tensors\": ",
      array_text(manifest.tensors,
                 [&](const auto& tensor) { return json_of(tensor, manifest.files); }),
      "}\n");
  return first_line(text) + text;
}

Manifest manifest_from_text(std::string_view text, const std::string& place) {
  const auto end = text.find('\n');
  const auto rest = end == std::string_view::npos ? "" : text.substr(end + 1);
  if (text.substr(0, end == std::string_view::npos ? end : end + 1) !=
      first_line(rest)) {
    throw Error(Fault::io, place,
                ": it is not what was written: its first line does not hold the digest "
                "of the others");
  }
  try {
    const auto json = Json::parse(text);
    check_version(json, place);
    auto manifest = from_json(json);
    check(manifest, place);
    return manifest;
  } catch (const nlohmann::json::exception& error) {
    throw Error(Fault::io, place, ": ", json_problem(error));
  } catch (const Error& error) {
    if (text::starts_with(error.what(), place)) throw;
    throw Error(error.fault(), place, ": ", error.what());
  }
}

}  // namespace lockstep::storage
