// lockstep models make NAME: a real small model, where no weights can be fetched.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/models.h"
#include "lockstep/cli/detail/output.h"

namespace lockstep::cli {
namespace {

using Path = std::filesystem::path;

constexpr std::string_view kTiny = "gpt2-tiny";
constexpr const char* kVocabulary = "1024";

// One rank with one thread: sums have the same order on every machine.
constexpr std::string_view kRecipe = R"(run: {seed: 1}
model: {name: gpt, hidden: 128, layers: 3, heads: 4, context: 128}
data: {name: text, sequence: 128}
batch: {global: 16}
optim: {lr: 2e-3, beta2: 0.95, weight_decay: 0.1, no_decay: auto, clip_norm: 1.0}
schedule: {name: cosine, warmup_steps: 50, final_ratio: 0.05}
train: {steps: 600, log_every: 50}
eval: {every: 0}
precision: {mode: fp32}
parallel: {device: cpu, ranks: 1, threads: 1}
)";

Path corpus_of(const Arguments& arguments) {
  const Path folder = arguments.value("--corpus").value_or("data/kjv");
  std::error_code ignored;
  for (const char* file : {"train.txt", "val.txt"}) {
    if (std::filesystem::exists(folder / file, ignored)) continue;
    throw Error(Fault::config, "models make: '", (folder / file).string(),
                "' is not there; `scripts/get_kjv.sh` fetches the King James Bible "
                "into data/kjv, and --corpus names another folder of train.txt and "
                "val.txt");
  }
  return std::filesystem::absolute(folder);
}

// Runs a command of ours, whose lines are shown.
void run_ours(const Context& context, std::vector<std::string> words) {
  words.insert(words.begin(), context.executable);
  const auto end =
      process::Child::start({.arguments = words, .environment = {}, .directory = {}})
          .wait();
  if (end.ok()) return;
  throw Error(Fault::config, "models make: `lockstep ", words[1], "` ended with ",
              process::describe(end), "; its message is above");
}

}  // namespace

hf::ModelFolder make_model(const Arguments& arguments, const Context& context,
                           const Path& models) {
  const auto name = arguments.operand("NAME").value_or("");
  if (name != kTiny) {
    throw Error(Fault::config, "models make: '", name, "' cannot be made; ", kTiny,
                " can, and `lockstep models add` takes weights from elsewhere");
  }
  const auto corpus = corpus_of(arguments);
  const files::TemporaryDirectory work;
  const auto at = [&](const char* part) { return (work.path() / part).string(); };
  files::write_atomically(at("recipe.yaml"), kRecipe);
  run_ours(context, {"tokenizer", "train", (corpus / "train.txt").string(),
                     "--vocab-size", kVocabulary, "-o", at("tokenizer")});
  run_ours(context,
           {"train", at("recipe.yaml"), "--run-dir", at("run"),
            "data.dir=" + corpus.string(), "data.tokenizer=" + at("tokenizer")});
  run_ours(context,
           {"checkpoint", "export", at("run"), "--format", "hf", "--to", at("model")});
  return hf::add_model(models, {name, at("model")});
}

}  // namespace lockstep::cli
