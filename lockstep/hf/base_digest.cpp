#include "lockstep/hf/base_digest.h"

#include <map>
#include <span>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/config/decisions.h"
#include "lockstep/hf/weights.h"
#include "lockstep/storage/digest.h"
#include "lockstep/storage/weights_file.h"

namespace lockstep::hf {
namespace {

// By name, so that the order of the files does not count.
using Digests = std::map<std::string, storage::Digest>;

storage::Digest digest_of_tensor(const std::string& dtype, const storage::Shape& shape,
                                 std::span<const std::byte> bytes) {
  return storage::digest_of({storage::digest_of(str(dtype, storage::to_text(shape))),
                             storage::digest_of(bytes)});
}

Digests digests_of_folder(const Path& folder) {
  const Weights weights(folder);
  Digests digests;
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < weights.tensors().size(); ++i) {
    const auto& [name, dtype, shape] = weights.tensors()[i];
    const auto elements = storage::num_elements(shape).value_or(0);
    bytes.resize(
        static_cast<std::size_t>(storage::num_bytes(dtype, elements).value_or(0)));
    weights.read(i, bytes);
    digests[name] = digest_of_tensor(dtype, shape, bytes);
  }
  return digests;
}

Digests digests_of_file(const Path& path) {
  const storage::WeightsFile file(path);
  Digests digests;
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const auto& entry = file.tensors()[i];
    bytes.clear();
    file.read(i, [&](std::span<const std::byte> piece) {
      bytes.insert(bytes.end(), piece.begin(), piece.end());
    });
    digests[entry.name] = digest_of_tensor(entry.dtype, entry.shape, bytes);
  }
  return digests;
}

}  // namespace

std::string digest_of_weights(const Path& weights) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(weights, ignored);
  std::vector<storage::Digest> all;
  for (const auto& [name, digest] :
       is_folder ? digests_of_folder(weights) : digests_of_file(weights)) {
    all.push_back(storage::digest_of(name));
    all.push_back(digest);
  }
  return storage::to_hex(storage::digest_of(all));
}

void check_base(std::string_view who, const BaseDigests& digests, const Path& weights) {
  if (digests.saved.empty() || digests.saved == digests.now) return;
  throw Error(Fault::config, who, "the adapters of the checkpoint were trained beside ",
              "other weights than those in '", weights.string(), "' (digest ",
              digests.saved, ", these have ", digests.now,
              "); put the weights back that the run began with");
}

void check_base(std::string_view who, const storage::Manifest& checkpoint,
                const config::Config& config) {
  if (config::saves_frozen(config.lora, config.model)) return;
  const auto state = nlohmann::json::parse(checkpoint.state, nullptr, false);
  if (!state.is_object() || !state.contains(kBaseDigest)) return;
  const auto& saved = state[std::string(kBaseDigest)];
  if (!saved.is_string() || saved.get<std::string>().empty()) return;
  const auto now = digest_of_weights(config.model.weights);
  check_base(who, {saved.get<std::string>(), now}, config.model.weights);
}

}  // namespace lockstep::hf
