#include "lockstep/generate/source.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/checkpoint/pieces.h"
#include "lockstep/config/decisions.h"
#include "lockstep/hf/base_digest.h"
#include "lockstep/hf/export.h"
#include "lockstep/hf/weights.h"
#include "lockstep/models/lora.h"
#include "lockstep/run/run_directory.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/reader.h"
#include "lockstep/storage/weights_file.h"

namespace lockstep::generate {
namespace {

using Path = std::filesystem::path;
using torch::Tensor;
using Tensors = std::map<std::string, Tensor>;

constexpr std::string_view kModel = "model.";  // before the names in a checkpoint

bool is_there(const Path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::span<std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()),
          static_cast<std::size_t>(tensor.nbytes())};
}

Tensor empty_like(const std::string& dtype, const storage::Shape& shape) {
  return torch::empty(shape, checkpoint::dtype_of_name(dtype));
}

Tensors from_checkpoint(const Path& path) {
  const storage::Reader reader(path);
  Tensors tensors;
  for (const auto& record : reader.manifest().tensors) {
    if (!record.name.starts_with(kModel)) continue;
    auto tensor = empty_like(record.dtype, record.shape);
    reader.read(record.name, bytes_of(tensor));
    tensors[record.name.substr(kModel.size())] = std::move(tensor);
  }
  return tensors;
}

Tensors from_file(const Path& path) {
  const storage::WeightsFile file(path);
  Tensors tensors;
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const auto& entry = file.tensors()[i];
    auto tensor = empty_like(entry.dtype, entry.shape);
    auto left = bytes_of(tensor);
    file.read(i, [&](std::span<const std::byte> piece) {
      std::copy(piece.begin(), piece.end(), left.begin());
      left = left.subspan(piece.size());
    });
    tensors[entry.name] = std::move(tensor);
  }
  return tensors;
}

Tensors from_folder(const hf::Weights& weights) {
  Tensors tensors;
  for (std::size_t i = 0; i < weights.tensors().size(); ++i) {
    const auto& entry = weights.tensors()[i];
    auto tensor = empty_like(entry.dtype, entry.shape);
    weights.read(i, bytes_of(tensor));
    tensors[entry.name] = std::move(tensor);
  }
  return tensors;
}

// Adds the product of each adapter to its weight.
void merge_adapters(Tensors& tensors, const config::LoraConfig& lora) {
  if (lora.rank == 0) return;
  const auto scale = lora.alpha / static_cast<double>(lora.rank);
  for (auto at = tensors.begin(); at != tensors.end();) {
    const auto& [name, a] = *at;
    if (!name.ends_with(".lora_A")) {
      ++at;
      continue;
    }
    const auto layer = name.substr(0, name.size() - std::string_view("lora_A").size());
    auto& weight = tensors.at(layer + "weight");
    weight = weight + torch::matmul(tensors.at(layer + "lora_B"), a) * scale;
    tensors.erase(layer + "lora_B");
    at = tensors.erase(tensors.find(layer + "lora_A"));
  }
}

void check_base_is_there(const config::Config& config) {
  if (is_there(config.model.weights)) return;
  throw Error(Fault::config, "generate: the run has trained adapters, and the weights ",
              "that they belong to, '", config.model.weights,
              "', are not there; put them back");
}

Tensors load_base(const config::Config& config) {
  const Path path = config.model.weights;
  if (std::filesystem::is_directory(path)) return from_folder(hf::Weights(path));
  return from_file(path);
}

void finish(ModelSource& source, const SourceOptions& options) {
  const torch::NoGradGuard no_grad;
  for (auto& [name, tensor] : source.weights.tensors) {
    if (!tensor.isfinite().all().item<bool>()) {
      throw Error(Fault::io, "generate: '", name, "' of '", options.path.string(),
                  "' holds a NaN or an infinity; take an earlier checkpoint");
    }
    tensor = tensor.to(options.device, options.dtype).contiguous();
  }
}

ModelSource of_config(const config::Config& config, Tensors tensors) {
  if (config.model.name != "gpt") {
    throw Error(Fault::config,
                "generate: the run has trained model.name=", config.model.name,
                "; only gpt generates text");
  }
  // Checkpoints of adapters hold nothing else.
  if (config.lora.rank > 0 && !tensors.contains("wte.weight")) {
    for (auto& [name, tensor] : load_base(config)) tensors.emplace(name, tensor);
  }
  merge_adapters(tensors, config.lora);
  const auto found = tensors.find("wte.weight");
  const bool is_padded = config.model.pad_vocabulary > 1;
  const auto rows = found == tensors.end() || is_padded ? 0 : found->second.size(0);
  return {.weights = {.heads = config.model.heads,
                      .vocabulary = rows,
                      .tensors = std::move(tensors)},
          .is_exact = true,
          .tokenizer = config.data.text.tokenizer,
          .text = config.data.text};
}

// Returns the config that a checkpoint carries: that of the run's directory may be of
// an attempt that was refused.
config::Config config_in(const Path& checkpoint, const SourceOptions& options) {
  const files::TemporaryDirectory folder;
  const auto recipe = folder.path() / "config.yaml";
  files::write_atomically(recipe, storage::Reader(checkpoint).manifest().config);
  return options.load_config(recipe).config;
}

ModelSource of_checkpoint(const Path& path, const SourceOptions& options) {
  const auto config = config_in(path, options);
  // Adapters that were trained beside other weights would say nonsense.
  if (!config::saves_frozen(config.lora, config.model)) check_base_is_there(config);
  hf::check_base("generate: ", storage::Reader(path).manifest(), config);
  return of_config(config, from_checkpoint(path));
}

ModelSource of_run(const Path& path, const SourceOptions& options) {
  const auto run = run::RunDirectory::open(path);
  const auto found = storage::newest_valid(run.checkpoints(), storage::Depth::quick);
  const auto file = run.path() / "model.safetensors";
  if (is_there(file)) {
    const bool is_older = found.path && std::filesystem::last_write_time(file) <
                                            std::filesystem::last_write_time(
                                                *found.path / storage::kManifestName);
    if (is_older) return of_checkpoint(*found.path, options);
    return of_config(found.path ? config_in(*found.path, options)
                                : options.load_config(run.config()).config,
                     from_file(file));
  }
  if (!found.path) {
    throw Error(Fault::config, "generate: the run '", path.string(),
                "' has neither model.safetensors nor a checkpoint; train it first");
  }
  return of_checkpoint(*found.path, options);
}

ModelSource of_folder(const Path& path) {
  const hf::Weights weights(path);
  weights.check({});
  const auto chats = hf::read_chat_template(path);
  config::TextData text;
  if (chats) text.chat_template = *chats;
  return {.weights = {.heads = weights.model().heads,
                      .vocabulary = weights.model().vocabulary,
                      .tensors = from_folder(weights)},
          .tokenizer = path,
          .text = text,
          .end_tokens = hf::end_tokens(path),
          .knows_chats = chats.has_value()};
}

}  // namespace

ModelSource load_source(const SourceOptions& options) {
  const auto& path = options.path;
  ModelSource source;
  if (is_there(path / "run.json")) {
    source = of_run(path, options);
  } else if (is_there(path / storage::kManifestName)) {
    source = of_checkpoint(path, options);
  } else if (is_there(path / hf::kConfigName)) {
    source = of_folder(path);
  } else {
    throw Error(Fault::config, "generate: '", path.string(),
                "' is neither a run, nor a checkpoint, nor a model's folder (it has no "
                "run.json, manifest.json or config.json)");
  }
  finish(source, options);
  return source;
}

}  // namespace lockstep::generate
