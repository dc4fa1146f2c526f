// Exports weights of a checkpoint, and imports those of others into our format.
#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/checkpoint.h"
#include "lockstep/cli/detail/checkpoint_export.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/decisions.h"
#include "lockstep/config/print.h"
#include "lockstep/hf/export.h"
#include "lockstep/storage/safetensors.h"
#include "lockstep/storage/torch_file.h"
#include "lockstep/storage/weights_file.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;
using Entries = std::vector<storage::SafetensorsEntry>;

constexpr std::string_view kModel = "model.";
constexpr std::string_view kAverage = "ema.";

Path target_of(const Arguments& arguments, const std::string& example) {
  const auto path = arguments.value("--to").value_or("");
  if (!path.empty()) return path;
  throw Error(Fault::config, "checkpoint ", *arguments.operand("ACTION"),
              ": say what to write: --to ", example);
}

// Throws before the work of reading if the file's folder does not exist.
void check_folder(const Path& file, const Arguments& arguments) {
  const auto folder = file.parent_path();
  std::error_code ignored;
  if (folder.empty() || std::filesystem::is_directory(folder, ignored)) return;
  throw Error(Fault::io, "checkpoint ", *arguments.operand("ACTION"), ": --to ",
              file.string(), ": '", folder.string(),
              "' is not a directory; create it first (mkdir -p)");
}

void order_and_place(Entries& entries) {
  std::sort(entries.begin(), entries.end(), storage::comes_before);
  storage::place(entries);
}

// Returns the model's tensors by their names in the file, or their averages.
std::map<std::string, std::string> sources_of(const storage::Manifest& manifest,
                                              bool average) {
  std::map<std::string, std::string> sources;
  bool has_average = false;
  for (const auto& tensor : manifest.tensors) {
    if (!text::starts_with(tensor.name, kModel)) continue;
    const auto name = tensor.name.substr(kModel.size());
    const auto averaged = std::string(kAverage) + name;
    const bool use = average && manifest.find(averaged) != nullptr;
    has_average |= use;
    sources.emplace(name, use ? averaged : tensor.name);
  }
  if (average && !has_average) {
    throw Error(Fault::config,
                "checkpoint export: the checkpoint has no averaged weights; --ema is "
                "for runs with ema.enabled=true");
  }
  if (sources.empty()) {
    throw Error(Fault::config, "checkpoint export: there is no tensor '", kModel,
                "...' in it");
  }
  return sources;
}

void give_tensor(const storage::Reader& reader, const std::string& name,
                 const storage::Give& give) {
  const auto& tensor = reader.tensor(name);
  const auto step = chunk_elements(tensor, !tensor.order.empty());
  std::vector<std::byte> bytes;
  for (std::int64_t at = 0; at < tensor.num_elements(); at += step) {
    const auto count = std::min(step, tensor.num_elements() - at);
    bytes.resize(
        static_cast<std::size_t>(storage::num_bytes(tensor.dtype, count).value_or(0)));
    reader.read(name, {at, count, {}}, bytes);
    give(bytes);
  }
}

// The writers of all formats have the same arguments.
using Write = decltype(&storage::write_safetensors);

struct ModelFile {
  Path path;
  Write write = storage::write_safetensors;
};

Entries write_model(const storage::Reader& reader, bool average,
                    const ModelFile& file) {
  const auto sources = sources_of(reader.manifest(), average);
  Entries entries;
  for (const auto& [name, source] : sources) {
    const auto& tensor = reader.tensor(source);
    entries.push_back({.name = name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  order_and_place(entries);
  file.write(file.path, entries, [&](const auto& entry, const auto& give) {
    give_tensor(reader, sources.at(entry.name), give);
  });
  return entries;
}

// Returns the model's section of it, for a model that only we know.
std::string config_json(const config::Loaded& config, std::int64_t step) {
  const auto all = Json::parse(config::to_json(config));
  Json json = {{"model_type", "lockstep"}};
  for (const auto& [key, knob] : all.at("model").items()) json[key] = knob.at("value");
  json["lockstep_step"] = step;
  return json.dump(2) + "\n";
}

void say_written(const Entries& entries, const Path& path, Context& context) {
  const auto bytes = entries.empty() ? 0 : entries.back().end;
  context.out << printable(fmt::format("wrote {}: {} tensors, {}\n", path.string(),
                                       entries.size(), units::format_bytes(bytes)));
}

// Turns "module.fc.weight" into "fc.weight".
std::string stripped(const std::string& name, const std::string& prefix) {
  if (prefix.empty()) return name;
  if (!text::starts_with(name, prefix) || name.size() == prefix.size()) {
    throw Error(Fault::config, "checkpoint import: --strip ", prefix, ": '", name,
                "' does not begin with it");
  }
  return name.substr(prefix.size());
}

void say_left_out(const storage::WeightsFile& file, Context& context) {
  for (const auto& name : file.left_out()) {
    context.err << printable(str("left out '", name, "', which is not a tensor"))
                << "\n";
  }
}

Entries import_file(const storage::WeightsFile& file, const Path& to,
                    const std::string& prefix) {
  std::map<std::string, std::size_t> sources;
  Entries entries;
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const auto& tensor = file.tensors()[i];
    const auto name = stripped(tensor.name, prefix);
    sources.emplace(name, i);
    entries.push_back({.name = name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  order_and_place(entries);
  storage::write_safetensors(to, entries, [&](const auto& entry, const auto& give) {
    file.read(sources.at(entry.name), give);
  });
  return entries;
}

// Returns the folder of the tokenizer: the one that was named, or that of the weights
// that the run began with.
Path tokenizer_of(const Arguments& arguments, const config::Config& config) {
  std::error_code ignored;
  const auto named = arguments.value("--tokenizer");
  if (named && !std::filesystem::is_directory(*named, ignored)) {
    throw Error(Fault::config, "checkpoint export: --tokenizer ", *named,
                ": there is no such folder");
  }
  if (named) return *named;
  for (const Path folder : {config.data.text.tokenizer, config.model.weights}) {
    if (!folder.empty() && std::filesystem::exists(folder, ignored)) return folder;
  }
  return {};
}

void export_gpt(const CheckpointExport& what, const config::Config& config,
                const Path& folder) {
  const auto& [reader, arguments, context] = what;
  const auto tokenizer = tokenizer_of(arguments, config);
  const auto sources = sources_of(reader.manifest(), arguments.has("--ema"));
  std::optional<hf::AdaptedWeights> adapted;
  if (config.lora.rank > 0) {
    adapted.emplace(config, reader, sources);
  }
  const auto exported = hf::export_gpt2({.reader = reader,
                                         .sources = sources,
                                         .config = config,
                                         .tokenizer = tokenizer,
                                         .adapted = adapted ? &*adapted : nullptr},
                                        folder);
  const auto& names = exported.tokenizer_files;
  if (names.empty() && arguments.has("--tokenizer")) {
    throw Error(Fault::config, "checkpoint export: --tokenizer ", tokenizer.string(),
                ": there is no file of a tokenizer in it (vocab.json, tokenizer.json, "
                "...)");
  }
  say_written(exported.tensors, folder.filename() / "model.safetensors", context);
  context.err << printable(
                     names.empty()
                         ? std::string(
                               "no tokenizer is with it; --tokenizer FOLDER adds one")
                         : str("tokenizer: ", text::join(names, ", "), " of ",
                               tokenizer.string()))
              << "\n";
}

// A folder appears whole or not at all.
void export_folder(const CheckpointExport& what, const Path& to) {
  const auto& [reader, arguments, context] = what;
  std::error_code error;
  if (std::filesystem::exists(to, error)) {
    throw Error(Fault::config, "checkpoint export: '", to.string(),
                "' exists; name a new directory");
  }
  const auto config = config_of(reader.manifest());
  const auto target = std::filesystem::absolute(to).lexically_normal();
  std::filesystem::create_directories(target.parent_path(), error);
  if (error) files::fail("make", target.parent_path(), error.value());
  const files::TemporaryDirectory work(target.parent_path());
  const auto folder = work.path() / target.filename();
  files::make_new_directory(folder);
  if (config.config.model.name == "gpt") {
    export_gpt(what, config.config, folder);
  } else {
    const auto file = folder / "model.safetensors";
    say_written(write_model(reader, arguments.has("--ema"), {file}),
                to / file.filename(), context);
    files::write_atomically(folder / "config.json",
                            config_json(config, reader.manifest().step));
    context.err << "note: transformers has no counterpart of model.name="
                << config.config.model.name
                << " and cannot load this directory; safetensors.torch.load_file() "
                   "reads its weights\n";
  }
  std::filesystem::rename(folder, target, error);
  if (error) files::fail("make", target, error.value());
}

}  // namespace

config::Loaded config_of(const storage::Manifest& manifest,
                         const std::vector<config::Override>& overrides) {
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "config.yaml";
  files::write_atomically(file, manifest.config);
  return config::load(file, overrides, {});
}

void write_weights(const CheckpointExport& what, const Path& file) {
  write_model(what.reader, what.arguments.has("--ema"), {file});
}

int export_checkpoint(const Arguments& arguments, Context& context) {
  const auto to = target_of(arguments, "model.safetensors");
  const auto format = arguments.value("--format").value_or("safetensors");
  if (format != "hf") check_folder(to, arguments);
  const auto place = checkpoint_place(arguments, context, arguments.operand("WHERE"));
  const storage::Reader reader(one_checkpoint(
      place, {arguments.value("--step"), storage::Depth::marked}, context));
  if (format == "hf") {
    export_folder({reader, arguments, context}, to);
    return kExitOk;
  }
  if (format == "torchscript") return export_script({reader, arguments, context}, to);
  const auto write =
      format == "pt" ? storage::write_torch_file : storage::write_safetensors;
  say_written(write_model(reader, arguments.has("--ema"), {to, write}), to, context);
  return kExitOk;
}

int import_weights(const Arguments& arguments, Context& context) {
  const auto from = arguments.operand("WHERE");
  if (!from) throw Error(Fault::config, "checkpoint import: name a file");
  const auto to = target_of(arguments, "weights.safetensors");
  check_folder(to, arguments);
  const auto prefix = arguments.value("--strip").value_or("");
  const storage::WeightsFile file(*from);
  say_left_out(file, context);
  say_written(import_file(file, to, prefix), to, context);
  return kExitOk;
}

}  // namespace lockstep::cli
