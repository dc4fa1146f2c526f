// The same training in PyTorch: a script that this program carries, run by the Python
// that was found. parity_script.h is parity_pytorch.py, made by CMake.
#include <algorithm>
#include <array>
#include <ostream>
#include <string_view>

#include "parity_script.h"
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/parity.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::cli {
namespace {

std::string request_json(const PytorchTrial& trial,
                         const std::filesystem::path& trace) {
  const auto& [plan, request, reference] = trial;
  const auto& config = plan.config.config;
  const auto& optim = config.optim;
  return nlohmann::ordered_json{{"model",
                                 {{"name", config.model.name},
                                  {"hidden", config.model.hidden},
                                  {"layers", config.model.layers},
                                  {"file", config.model.file}}},
                                {"optim",
                                 {{"name", config::name_of(optim.name)},
                                  {"lr", optim.lr},
                                  {"weight_decay", optim.weight_decay},
                                  {"momentum", optim.momentum},
                                  {"nesterov", optim.nesterov},
                                  {"betas", {optim.beta1, optim.beta2}},
                                  {"eps", optim.eps},
                                  {"no_decay", optim.no_decay},
                                  {"layer_decay", optim.layer_decay},
                                  {"clip_norm", optim.clip_norm},
                                  {"clip_value", optim.clip_value}}},
                                {"class_weights", config.data.class_weights},
                                {"steps", request.steps},
                                {"threads", config.parallel.threads.value()},
                                {"reference", reference.trace.string()},
                                {"reference_ranks", reference.ranks},
                                {"trace", trace.string()}}
      .dump();
}

std::string last_line(std::string_view text) {
  const auto lines = text::split(text::trim(text), '\n');
  return lines.back();
}

// The script computes plain cross-entropy: anything else would be told apart, and
// blamed on the exchange.
void refuse_tasks(const config::Config& config) {
  config::Loaded wanted, plain;
  wanted.config = config;
  for (const auto& key : config::keys()) {
    if (!text::starts_with(key, "task.") ||
        config::get(wanted, key) == config::get(plain, key)) {
      continue;
    }
    throw Error(Fault::config, "--against pytorch: ", key,
                " is not computed there, only plain cross-entropy; leave it at its "
                "default, or leave --against out");
  }
}

}  // namespace

void require_pytorch(const std::string& python, const config::Config& config) {
  // The models of parity_pytorch.py; a model of ours may have no twin there.
  static constexpr std::array<std::string_view, 3> kModels = {"cnn", "mlp",
                                                              "torchscript"};
  if (std::find(kModels.begin(), kModels.end(), config.model.name) == kModels.end()) {
    throw Error(Fault::config, "--against pytorch: there is no PyTorch version of ",
                "model.name=", config.model.name,
                " here, only of cnn, mlp and torchscript; ", "leave --against out");
  }
  // Its weights follow from all samples, of which the script sees those of a few steps.
  if (config.data.balanced_loss) {
    throw Error(Fault::config,
                "--against pytorch: data.balanced_loss is not computed there; give the "
                "weights in data.class_weights, or leave --against out");
  }
  refuse_tasks(config);
  constexpr std::string_view kRemedy =
      "; name one that has PyTorch with --python PATH or in PYTHON_EXEC, or leave "
      "--against out";
  process::Output output;
  try {
    output = process::run({.arguments = {python, "-c",
                                         "import torch, torch.distributed as d; "
                                         "assert d.is_gloo_available(), 'no gloo'"},
                           .environment = {},
                           .directory = {},
                           .out = process::StreamMode::pipe,
                           .err = process::StreamMode::pipe},
                          std::chrono::minutes(2));
  } catch (const Error& error) {
    throw Error(Fault::hardware, "parity: the Python '", python,
                "' does not start: ", error.what(), kRemedy);
  }
  if (!output.end.ok()) {
    throw Error(Fault::hardware, "parity: the Python '", python,
                "' has no usable PyTorch: ", last_line(output.err), kRemedy);
  }
}

ParityRun run_pytorch(const jobs::Trials& trials, const PytorchTrial& trial) {
  const auto& request = trial.request;
  run::NewRun wanted{.name = "pytorch",
                     .record = run::record_of_this_process(),
                     .config_yaml = "",
                     .plan_json = ""};
  wanted.record.command = trials.caller.command_line;
  const auto run = run::RunDirectory::create(trials.directory, wanted);
  const auto path = std::filesystem::absolute(run.path());
  std::filesystem::create_directory(path / "trace");
  files::write_atomically(path / "parity_pytorch.py", kParityScript);
  files::write_atomically(path / "request.json", request_json(trial, path / "trace"));
  const int ranks = *std::max_element(request.ranks.begin(), request.ranks.end());
  launcher::Job job;
  job.command = {request.python, "-u", (path / "parity_pytorch.py").string(),
                 (path / "request.json").string()};
  for (auto& where :
       launcher::place_ranks(hardware::cpu_topology(), {.ranks = ranks})) {
    where.threads = trial.plan.config.config.parallel.threads.value();
    job.ranks.push_back({.place = std::move(where)});
  }
  job.first.world_size = ranks;
  job.first.job_id = run.read_record().id;
  return {.name = str("PyTorch DDP with ", ranks, ranks == 1 ? " rank" : " ranks"),
          .ranks = 0,
          .trace = path / "trace",
          .result = launcher::run_job(run, job, trials.signals)};
}

}  // namespace lockstep::cli
