// Exports a checkpoint as a TorchScript program.
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/checkpoint_export.h"
#include "lockstep/cli/detail/inference.h"
#include "lockstep/cli/detail/output.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

// Returns "input (batch, 1, 28, 28) float32, mask (batch, 12) bool".
std::string tensors_text(const Json& tensors) {
  std::vector<std::string> parts;
  for (const auto& tensor : tensors) {
    std::vector<std::string> sizes;
    for (const auto& size : tensor.at("shape")) {
      sizes.push_back(size.is_string() ? size.get<std::string>() : size.dump());
    }
    parts.push_back(fmt::format("{} ({}) {}", tensor.at("name").get<std::string>(),
                                text::join(sizes, ", "),
                                tensor.at("dtype").get<std::string>()));
  }
  return text::join(parts, ", ");
}

// Returns the config of the run as one process on the CPU uses it, with these weights.
config::Loaded config_with(const CheckpointExport& what, const Path& weights) {
  if (config_of(what.reader.manifest()).config.lora.rank > 0) {
    throw Error(Fault::config,
                "checkpoint export: --format torchscript: the run has trained "
                "adapters, which a program does not keep apart; --format hf merges "
                "them into the weights");
  }
  return config_of(what.reader.manifest(), {{"model.weights", weights.string()},
                                            {"model.own_backward", "false"},
                                            {"parallel.device", "cpu"},
                                            {"precision.mode", "fp32"},
                                            {"train.graph", "off"}});
}

}  // namespace

int export_script(const CheckpointExport& what, const Path& to) {
  const auto target = std::filesystem::absolute(to).lexically_normal();
  const files::TemporaryDirectory work(target.parent_path());
  const auto weights = work.path() / "weights.safetensors";
  const auto program = work.path() / target.filename();
  const auto config = config_with(what, weights);
  write_weights(what, weights);
  const auto output = run_inference({.command = "checkpoint export",
                                     .words = {"--script", program.string()},
                                     .catches_output = true},
                                    config, what.context);
  if (const auto status = status_of(output.end); status != kExitOk) return status;
  const auto notes = Json::parse(output.out, nullptr, false);
  if (!notes.is_object()) {
    throw Error(Fault::internal, "checkpoint export: lockstep_worker said '",
                output.out, "'");
  }
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(program));
  std::error_code error;
  std::filesystem::rename(program, target, error);
  if (error) files::fail("write", target, error.value());
  what.context.out << printable(
      fmt::format("wrote {}: a TorchScript program, {}; inputs: {}; outputs: {}\n",
                  to.string(), units::format_bytes(bytes),
                  tensors_text(notes.at("inputs")), tensors_text(notes.at("outputs"))));
  return kExitOk;
}

}  // namespace lockstep::cli
