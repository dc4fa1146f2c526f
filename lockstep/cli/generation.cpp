#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/generate.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"
#include "lockstep/hf/model_folders.h"
#include "lockstep/jobs/settle_model.h"
#include "lockstep/jobs/worker.h"
#include "lockstep/storage/manifest.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct NumberOption {
  const char* name;
  double low;
  double high;
};

constexpr NumberOption kNumbers[] = {
    {"--temperature", 0, 100}, {"--top-p", 0, 1}, {"--repetition-penalty", 0.01, 100}};
constexpr long long kMostCount = 1 << 24;
constexpr const char* kCounts[] = {"--max-tokens", "--top-k", "--seed"};

// Returns the folder of a run, a checkpoint or a model, given by its path or name.
fs::path source_of(const Arguments& arguments, const Context& context) {
  const auto directory = arguments.value("--dir").value_or(default_run_dir(context));
  const auto word = arguments.operand("SOURCE");
  if (!word) return jobs::find_run("generate", std::nullopt, directory).path();
  std::error_code ignored;
  for (const char* file : {"run.json", "manifest.json", "config.json"}) {
    if (fs::exists(fs::path(*word) / file, ignored)) return *word;
  }
  if (fs::exists(fs::path(directory) / *word / "run.json", ignored)) {
    return fs::path(directory) / *word;
  }
  return hf::find_model(jobs::models_directory({}, caller_of(context)), *word).path;
}

void check_number(const NumberOption& option, const std::string& text) {
  const auto number = text::to_double(text);
  if (number && *number >= option.low && *number <= option.high) return;
  throw Error(Fault::config, "generate: ", option.name, " is '", text,
              "', which is not a number from ", option.low, " to ", option.high);
}

void check_words(const Arguments& arguments) {
  for (const auto& word : arguments.values("--stop")) {
    if (!word.empty()) continue;
    throw Error(Fault::config,
                "generate: --stop is empty; write the string to stop at");
  }
  const auto device = arguments.value("--device").value_or("cpu");
  const bool is_numbered = device.starts_with("cuda:") &&
                           text::to_integer(device.substr(5)).value_or(-1) >= 0;
  if (device == "cpu" || device == "cuda" || is_numbered) return;
  throw Error(Fault::config, "generate: there is no device '", device,
              "'; --device is cpu, cuda or cuda:N");
}

}  // namespace

Operand generation_source() {
  return {.name = "SOURCE",
          .help =
              "A run, a checkpoint, a folder of Hugging Face, or a name of "
              "`lockstep models list`; without it, the newest run.",
          .required = false,
          .completes = Completes::directory};
}

std::vector<Option> generation_options() {
  return {
      {.name = "--max-tokens",
       .shorthand = "-n",
       .value = "N",
       .help = "The maximum number of new tokens (default: 128)."},
      {.name = "--temperature",
       .value = "T",
       .help = "Sampling temperature; 0: greedy decoding (default: 1)."},
      {.name = "--top-k",
       .value = "K",
       .help = "Top-k: sample from the K most likely tokens (default: 0, all)."},
      {.name = "--top-p",
       .value = "P",
       .help = "Top-p: sample from the most likely tokens with this total probability "
               "(default: 1)."},
      {.name = "--repetition-penalty",
       .value = "R",
       .help = "Above 1: tokens that have occurred become less likely (default: 1)."},
      {.name = "--seed",
       .value = "N",
       .help = "The same seed gives the same text (default: 0)."},
      {.name = "--stop",
       .value = "TEXT",
       .help = "Stop a text at this string; may be given several times."},
      {.name = "--tokenizer",
       .value = "PATH",
       .help = "The tokenizer, if the source does not name it.",
       .completes = Completes::file},
      {.name = "--device",
       .value = "DEVICE",
       .help = "cpu, cuda or cuda:N (default: the GPU, where there is one)."},
      {.name = "--dtype",
       .value = "DTYPE",
       .help = "Precision (default: fp32).",
       .choices = {"fp32", "bf16", "fp16"}},
      {.name = "--dir",
       .value = "DIR",
       .help = "The directory that holds the runs (default: LOCKSTEP_RUN_DIR, else "
               "runs).",
       .completes = Completes::directory}};
}

std::vector<std::string> generation_words(const Arguments& arguments,
                                          const Context& context) {
  std::vector<std::string> words{"--source", source_of(arguments, context).string()};
  for (const auto& option : kNumbers) {
    const auto value = arguments.value(option.name);
    if (!value) continue;
    check_number(option, *value);
    words.insert(words.end(), {option.name, *value});
  }
  for (const char* name : kCounts) {
    const long long least = std::string_view(name) == "--max-tokens" ? 1 : 0;
    if (const auto value = arguments.number(name, least)) {
      if (*value > kMostCount && std::string_view(name) != "--seed") {
        throw Error(Fault::config, "generate: ", name, " is ", *value,
                    ", more than any model has; use at most ", kMostCount);
      }
      words.insert(words.end(), {name, std::to_string(*value)});
    }
  }
  check_words(arguments);
  for (const auto& word : arguments.values("--stop")) {
    words.insert(words.end(), {"--stop", word});
  }
  for (const char* name : {"--tokenizer", "--device", "--dtype"}) {
    if (const auto value = arguments.value(name)) {
      words.insert(words.end(), {name, *value});
    }
  }
  return words;
}

int run_generation(const std::vector<std::string>& words, const Context& context) {
  process::ProcessOptions command{
      .arguments = {jobs::find_worker(caller_of(context)).string(), "--generate"},
      .environment = {},
      .directory = {}};
  command.arguments.insert(command.arguments.end(), words.begin(), words.end());
  const auto end = process::Child::start(command).wait();
  if (end.signal != 0 || end.exit_status == kExitOk) return end.shell_status();
  return shell_status(fault_of(end.exit_status));
}

}  // namespace lockstep::cli
