#include "lockstep/cli/detail/inference.h"

#include <array>
#include <cerrno>
#include <filesystem>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"
#include "lockstep/config/decisions.h"
#include "lockstep/config/load.h"
#include "lockstep/config/print.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/worker.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

bool file_is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The weights that are asked for: those of a run, by their name or as a file.
struct WantedWeights {
  std::string which;    // "final"
  std::string command;  // for errors
};

// Returns the knob that names the weights, and what it is set to.
config::Override trained_weights(const run::RunDirectory& run,
                                 const config::Config& config,
                                 const WantedWeights& wanted) {
  const auto& [which, command] = wanted;
  const bool whole = config::saves_frozen(config.lora, config.model);
  const std::string stem = which == "final" ? (whole ? "model" : "") : which;
  if (which != "final" && which != "best" && which != "ema") {
    if (file_is_there(which)) return {"model.weights", fs::absolute(which).string()};
    throw Error(Fault::config, command, ": --weights '", which,
                "' is not a file; it is final, best, ema, or a file of weights");
  }
  if (config.lora.rank > 0 && whole) {
    throw Error(Fault::config, command, ": '", run.path().string(),
                "' has trained adapters beside weights that it drew itself, whose file "
                "holds both; `lockstep checkpoint export` merges them, and --weights "
                "names what it has written");
  }
  const auto name =
      whole ? stem + ".safetensors" : (stem.empty() ? "" : stem + "_") + "adapter";
  const auto path = fs::absolute(run.path() / name);
  if (file_is_there(path)) {
    return {whole ? "model.weights" : "lora.weights", path.string()};
  }
  throw Error(
      Fault::config, command, ": '", path.string(), "' is not there: ",
      which == "best"  ? "the run keeps none (checkpoint.save_best)"
      : which == "ema" ? "the run averages no weights (ema.enabled)"
                       : "the run has not ended",
      "; `lockstep checkpoint export ", run.path().string(),
      " --to weights.safetensors` writes those of its newest checkpoint, and --weights "
      "names them");
}

std::string read_to_end(int descriptor) {
  std::string text;
  std::array<char, 1 << 16> piece;
  while (true) {
    const auto got = ::read(descriptor, piece.data(), piece.size());
    if (got == 0) return text;
    if (got > 0) {
      text.append(piece.data(), static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      files::fail("read", "the output of lockstep_worker", errno);
    }
  }
}

}  // namespace

Operand inference_run() {
  return {.name = "RUN",
          .help = "A run, by its directory or its id; \"-\": the newest one.",
          .required = false,
          .completes = Completes::directory};
}

std::vector<Option> inference_options() {
  return {{.name = "--weights",
           .value = "WHICH",
           .help = "final, best, ema, or a file of weights (default: final).",
           .completes = Completes::file},
          {.name = "--dir",
           .value = "DIR",
           .help = "The directory that holds the runs (default: LOCKSTEP_RUN_DIR, else "
                   "runs).",
           .completes = Completes::directory}};
}

run::RunDirectory inference_run_directory(const std::string& command,
                                          const Arguments& arguments,
                                          const Context& context) {
  const auto directory = arguments.value("--dir").value_or(default_run_dir(context));
  auto word = arguments.operand("RUN");
  if (word == "-") word.reset();
  return jobs::find_run(command, word, directory);
}

process::Output run_inference(const InferenceCall& call, const Arguments& arguments,
                              const Context& context) {
  const auto run = inference_run_directory(call.command, arguments, context);
  auto overrides = arguments.overrides();
  auto loaded = config::load(run.config(), overrides, {});
  const auto which = arguments.value("--weights").value_or("final");
  overrides.push_back(trained_weights(run, loaded.config, {which, call.command}));
  const auto named = [&](std::string_view key) {
    for (const auto& one : overrides) {
      if (one.key == key) return true;
    }
    return false;
  };
  // A run of a GPU can be looked at on any machine.
  if (!named("parallel.device") && hardware::detect().gpus.empty()) {
    overrides.push_back({"parallel.device", "cpu"});
  }
  return run_inference(call, config::load(run.config(), overrides, {}), context);
}

process::Output run_inference(const InferenceCall& call, const config::Loaded& config,
                              const Context& context) {
  const files::TemporaryDirectory folder;
  const auto recipe = folder.path() / "config.yaml";
  files::write_atomically(recipe, config::to_yaml(config, false));
  process::ProcessOptions command{
      .arguments = {jobs::find_worker(caller_of(context)).string(), call.mode,
                    "--recipe", recipe.string()},
      .environment = {},
      .directory = {},
      .out = call.catches_output ? process::StreamMode::pipe
                                 : process::StreamMode::inherit};
  command.arguments.insert(command.arguments.end(), call.words.begin(),
                           call.words.end());
  auto child = process::Child::start(command);
  process::Output output;
  if (call.catches_output) output.out = read_to_end(child.out().get());
  output.end = child.wait();
  return output;
}

int status_of(const process::End& end) {
  if (end.signal != 0) return end.shell_status();
  return end.exit_status == kExitOk ? kExitOk : shell_status(fault_of(end.exit_status));
}

}  // namespace lockstep::cli
