// Exports weights of a checkpoint, and imports those of others into our format.
#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/checkpoint.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/print.h"
#include "lockstep/storage/safetensors.h"
#include "lockstep/storage/torch_file.h"

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
              "' is no folder; make it first (mkdir -p)");
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
                "checkpoint export: there are no averaged weights in it; --ema is for "
                "runs with ema.enabled=true");
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

Entries write_model(const storage::Reader& reader, bool average, const Path& path,
                    Write write = storage::write_safetensors) {
  const auto sources = sources_of(reader.manifest(), average);
  Entries entries;
  for (const auto& [name, source] : sources) {
    const auto& tensor = reader.tensor(source);
    entries.push_back({.name = name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  order_and_place(entries);
  write(path, entries, [&](const auto& entry, const auto& give) {
    give_tensor(reader, sources.at(entry.name), give);
  });
  return entries;
}

// Returns the model's section of the run's config.
std::string config_json(const storage::Manifest& manifest) {
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "config.yaml";
  files::write_atomically(file, manifest.config);
  const auto all = Json::parse(config::to_json(config::load(file, {}, {})));
  Json json = {{"model_type", "lockstep"}};
  for (const auto& [key, knob] : all.at("model").items()) json[key] = knob.at("value");
  json["lockstep_step"] = manifest.step;
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

Entries import_torch(const Path& from, const Path& to, const std::string& prefix,
                     Context& context) {
  const storage::TorchFile file(from);
  for (const auto& name : file.left_out()) {
    context.err << printable(str("left out '", name, "', which is no tensor")) << "\n";
  }
  std::map<std::string, const storage::TorchTensor*> tensors;
  Entries entries;
  for (const auto& tensor : file.tensors()) {
    const auto name = stripped(tensor.name, prefix);
    tensors.emplace(name, &tensor);
    entries.push_back({.name = name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  order_and_place(entries);
  storage::write_safetensors(to, entries, [&](const auto& entry, const auto& give) {
    const auto& tensor = *tensors.at(entry.name);
    const auto total = storage::num_elements(tensor.shape).value_or(0);
    const auto width = storage::num_bytes(tensor.dtype, 1).value_or(0);
    const auto step = storage::is_row_major(tensor) ? std::int64_t{1} << 20
                                                    : std::max<std::int64_t>(1, total);
    std::vector<std::byte> bytes;
    for (std::int64_t at = 0; at < total; at += step) {
      const auto count = std::min(step, total - at);
      bytes.resize(static_cast<std::size_t>(count * width));
      file.read(tensor, at, count, bytes);
      give(bytes);
    }
  });
  return entries;
}

Entries import_safetensors(const Path& from, const Path& to,
                           const std::string& prefix) {
  const auto header = storage::read_safetensors_header(from);
  std::map<std::string, const storage::SafetensorsEntry*> sources;
  Entries entries;
  for (const auto& entry : header.entries) {
    const auto name = stripped(entry.name, prefix);
    sources.emplace(name, &entry);
    entries.push_back({.name = name, .dtype = entry.dtype, .shape = entry.shape});
  }
  order_and_place(entries);
  storage::write_safetensors(to, entries, [&](const auto& entry, const auto& give) {
    const auto& source = *sources.at(entry.name);
    storage::read_in_pieces(from, header.data_begin + source.begin,
                            source.end - source.begin, give);
  });
  return entries;
}

}  // namespace

int export_checkpoint(const Arguments& arguments, Context& context) {
  const auto to = target_of(arguments, "model.safetensors");
  const auto format = arguments.value("--format").value_or("safetensors");
  if (format != "hf") check_folder(to, arguments);
  const auto place = checkpoint_place(arguments, context, arguments.operand("WHERE"));
  const storage::Reader reader(
      one_checkpoint(place, arguments, context, storage::Depth::marked));
  const bool average = arguments.has("--ema");
  if (format != "hf") {
    const auto write =
        format == "pt" ? storage::write_torch_file : storage::write_safetensors;
    say_written(write_model(reader, average, to, write), to, context);
    return kExitOk;
  }
  const auto config = config_json(reader.manifest());
  if (!files::make_new_directory(to)) {
    throw Error(Fault::config, "checkpoint export: '", to.string(),
                "' exists; name a new directory");
  }
  const auto file = to / "model.safetensors";
  say_written(write_model(reader, average, file), file, context);
  files::write_atomically(to / "config.json", config);
  return kExitOk;
}

int import_weights(const Arguments& arguments, Context& context) {
  const auto from = arguments.operand("WHERE");
  if (!from) throw Error(Fault::config, "checkpoint import: name a file");
  const auto to = target_of(arguments, "weights.safetensors");
  check_folder(to, arguments);
  const auto prefix = arguments.value("--strip").value_or("");
  const auto entries = storage::is_torch_file(*from)
                           ? import_torch(*from, to, prefix, context)
                           : import_safetensors(*from, to, prefix);
  say_written(entries, to, context);
  return kExitOk;
}

}  // namespace lockstep::cli
