// Training begins with the weights of transformers, which loads what comes of it.
#include <fstream>
#include <sstream>

#include "lockstep/base/text.h"
#include "lockstep/checkpoint/load.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/hf/settle.h"
#include "lockstep/models/model.h"
#include "tests/support/hf_model.h"
#include "tests/support/oracle.h"

namespace lockstep::checkpoint {
namespace {

using test::model_with_weights;
using test::settled_recipe;

class HuggingFace : public testing::Test {
 protected:
  void make(const std::string& size) {
    test::expect_oracle_agrees("hf_gpt2.py", {"make", path("").string(), size});
  }
  files::Path path(const std::string& name) const { return folder_.path() / name; }

  // What transformers has to make of our weights.
  void show(const config::Config& config, models::Model& model) const {
    const torch::NoGradGuard no_grad;
    model.eval();
    const auto tokens =
        torch::randint(config.data.classes, {2, config.data.sequence}, torch::kInt64);
    write_safetensors(path("ours.safetensors"),
                      {{"tokens", tokens}, {"logits", model.forward(tokens)}});
  }

  files::TemporaryDirectory folder_;
};

process::Output run_lockstep(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), test::binary("lockstep").string());
  auto output = process::run({.arguments = arguments}, std::chrono::minutes(2));
  EXPECT_EQ(output.end.shell_status(), 0) << output.out << output.err;
  return output;
}

// Windows of one batch, which every step takes.
void write_tokens(const files::Path& folder) {
  std::filesystem::create_directories(folder);
  std::vector<std::uint16_t> tokens;
  for (std::uint32_t i = 0; i < 8 * 24 + 1; ++i) {
    tokens.push_back(static_cast<std::uint16_t>(i * i * 7 % 97));
  }
  for (const auto* name : {"train.bin", "val.bin"}) {
    std::ofstream(folder / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()),
               static_cast<std::streamsize>(tokens.size() * sizeof tokens[0]));
  }
}

std::vector<double> losses_of(const files::Path& run) {
  std::vector<double> losses;
  std::istringstream lines(test::read_file(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto at = line.find("\"loss\":");
    if (line.find("\"train\"") == line.npos || at == line.npos) continue;
    losses.push_back(std::strtod(line.c_str() + at + 7, nullptr));
  }
  return losses;
}

TEST_F(HuggingFace, TenStepsFollowPyTorchAndTransformersLoadsTheExport) {
  LOCKSTEP_NEEDS_ORACLE();
  make("tiny");
  write_tokens(path("tokens"));
  const auto steps =
      test::run({test::oracle_python(), test::fixture("oracle/hf_gpt2.py").string(),
                 "steps", path("").string(), path("tokens/train.bin").string()});
  ASSERT_TRUE(steps.end.ok()) << steps.err;
  test::write_file(
      path("recipe.yaml"),
      "optim: {name: adamw, lr: 1e-3, weight_decay: 0.1, no_decay: none}\n");
  run_lockstep({"train", path("recipe.yaml").string(), "--run-dir",
                path("run").string(), "parallel.device=cpu", "parallel.threads=1",
                "precision.mode=fp32", "data.name=tokens",
                "data.dir=" + path("tokens").string(), "batch.global=8",
                "train.steps=10", "train.log_every=1", "checkpoint.every=10",
                "data.shuffle=false", "model.pad_vocabulary=64",
                "model.weights=" + path("whole").string()});
  const auto ours = losses_of(path("run"));
  const auto theirs = text::split(text::trim(steps.out), '\n');
  ASSERT_EQ(ours.size(), 10U);
  ASSERT_EQ(theirs.size(), 10U);
  EXPECT_LT(ours[9], ours[0] - 0.1) << "it learns";
  for (std::size_t i = 0; i < 10; ++i) {
    const auto wanted = text::to_double(theirs[i]).value();
    EXPECT_NEAR(ours[i], wanted, 1e-3 * wanted) << "step " << i + 1;
  }
  run_lockstep({"checkpoint", "export", path("run").string(), "--format", "hf", "--to",
                path("exported").string()});
  EXPECT_THAT(
      test::names_in(path("exported")),
      testing::ElementsAre("config.json", "generation_config.json", "merges.txt",
                           "model.safetensors", "tokenizer_config.json", "vocab.json"));
  test::expect_oracle_agrees("hf_gpt2.py", {"tokenizer", path("exported").string()});
  // What transformers loads is what training left, without the rows that fill up.
  auto config = settled_recipe(path("whole"), {"model.pad_vocabulary=64"}).config;
  auto model = models::build(config.model, {{24}, 97});
  load_weights(path("run/model.safetensors"), *model, {});
  show(config, *model);
  test::expect_oracle_agrees("hf_gpt2.py", {"read", path("exported").string(),
                                            path("ours.safetensors").string()});
  // And the export is where a run can start over.
  config.model.weights = path("exported").string();
  const auto again = model_with_weights(config);
  for (const auto& item : model->named_parameters()) {
    EXPECT_TRUE(again->named_parameters()[item.key()].equal(item.value()))
        << item.key();
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
