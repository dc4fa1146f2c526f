#include <torch/csrc/jit/api/module.h>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/models/model.h"
#include "tests/support/oracle.h"

namespace lockstep::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A model that PyTorch has written.
struct Written {
  explicit Written(const std::string& kind) : file(folder.path() / (kind + ".pt")) {
    test::expect_oracle_agrees("torchscript.py", {kind, file.string()});
  }
  files::TemporaryDirectory folder;
  std::filesystem::path file;
};

std::vector<std::string> names_in(const torch::nn::Module& module) {
  std::vector<std::string> names;
  for (const auto& item : module.named_parameters()) names.push_back(item.key());
  return names;
}

TEST(TorchScript, HasPyTorchsNamesAndComputesWhatItDoes) {
  LOCKSTEP_NEEDS_ORACLE();
  const Written written("one");
  const auto model =
      build({.name = "torchscript", .file = written.file.string()}, {{1, 28, 28}, 10});
  EXPECT_THAT(names_in(*model),
              ElementsAre("features.0.weight", "features.0.bias", "features.1.weight",
                          "features.1.bias", "head.weight", "head.bias"));
  EXPECT_EQ(model->named_buffers().size(), 3U);
  model->eval();
  const auto input = torch::randn({5, 1, 28, 28});
  const torch::NoGradGuard no_grad;
  const auto output = model->forward_named({{"input", input}}).at("output");
  const auto check = written.folder.path() / "check.safetensors";
  checkpoint::write_safetensors(check, {{"input", input}, {"output", output}});
  test::expect_oracle_agrees("torchscript.py",
                             {"one", written.file.string(), check.string()});
}

// An engine moves parameters into memory of its own: the script has to see that.
TEST(TorchScript, ParametersThatMoveAreThoseOfTheScript) {
  LOCKSTEP_NEEDS_ORACLE();
  const Written written("plain");
  const auto model =
      build({.name = "torchscript", .file = written.file.string()}, {{1, 28, 28}, 10});
  const auto input = torch::randn({2, 1, 28, 28});
  const auto before = model->forward_named({{"input", input}}).at("output");
  for (auto& p : model->parameters()) {
    p.set_data(torch::zeros_like(p));
  }
  const auto after = model->forward_named({{"input", input}}).at("output");
  EXPECT_GT(before.abs().max().item<double>(), 0);
  EXPECT_EQ(after.abs().max().item<double>(), 0);
  after.sum().backward();
  EXPECT_EQ(model->named_parameters()["head.bias"].grad()[0].item<double>(), 2);
}

TEST(TorchScript, TensorsGoInAndComeOutByName) {
  LOCKSTEP_NEEDS_ORACLE();
  const Written two("two");
  config::ModelConfig config{.name = "torchscript", .file = two.file.string()};
  config.inputs = {"scan", "lab"};
  config.outputs = {"organ", "risk"};
  const auto model = build(config, {});
  EXPECT_THAT(model->inputs(), ElementsAre("scan", "lab"));
  const Named inputs{{"scan", torch::randn({4, 6})}, {"lab", torch::randn({4, 4})}};
  model->eval();
  const auto outputs = model->forward_named(inputs);
  EXPECT_EQ(outputs.at("organ").size(1), 3);
  EXPECT_EQ(outputs.at("risk").size(1), 2);
  EXPECT_TRUE(model->forward_named(inputs).at("organ").equal(outputs.at("organ")))
      << "dropout is off";
  model->train();
  EXPECT_FALSE(model->forward_named(inputs).at("organ").equal(outputs.at("organ")));
  config.outputs = {"organ"};
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] { build(config, {})->forward_named(inputs); }),
              HasSubstr("returns 2 tensors, but the names are [organ]; write one"));
}

TEST(TorchScript, ADictionaryHasNamesOfItsOwn) {
  LOCKSTEP_NEEDS_ORACLE();
  const Written written("named");
  const auto model = build({.name = "torchscript", .file = written.file.string()}, {});
  const auto outputs = model->forward_named({{"input", torch::randn({4, 6})}});
  EXPECT_EQ(outputs.at("logits").dim(), 2);
  EXPECT_EQ(outputs.at("score").dim(), 1);
}

TEST(TorchScript, WhatNobodyCanNameIsRefusedWithTheFileAndTheKnob) {
  const files::TemporaryDirectory folder;
  const auto file = (folder.path() / "model.pt").string();
  const auto refusal = [&](const std::string& returned,
                           const std::vector<std::string>& outputs = {"output"}) {
    torch::jit::Module script("Script");
    script.define("def forward(self, input):\n    return " + returned + "\n");
    script.save(file);
    config::ModelConfig config{.name = "torchscript", .file = file};
    config.outputs = outputs;
    const auto model = build(config, {});
    const Named inputs{{"input", torch::ones({2, 3})}};
    const auto text =
        test::error_text(Fault::config, [&] { model->forward_named(inputs); });
    EXPECT_THAT(text, testing::StartsWith("model.outputs: '" + file + "' returns "));
    return text;
  };
  EXPECT_THAT(refusal("{'score': 3}"), HasSubstr("returns Dict[str, int]; a model"));
  EXPECT_THAT(refusal("{1: input}"), HasSubstr("returns Dict[int, Tensor]; a model"));
  EXPECT_THAT(refusal("(input, 3)"), HasSubstr("returns Tuple[Tensor, int]; a model"));
  EXPECT_THAT(refusal("[1, 2]"), HasSubstr("returns List[int]; a model"));
  EXPECT_THAT(refusal("3"), HasSubstr("returns int; a model"));
  EXPECT_THAT(refusal("None"), HasSubstr("returns None"));
  EXPECT_THAT(refusal("input", {}), HasSubstr("1 tensor, but the names are []"));
  EXPECT_THAT(refusal("input", {"a", "b"}), HasSubstr("the names are [a, b]"));
  EXPECT_THAT(refusal("(input, input)"), HasSubstr("2 tensors, but the names are "));
}

TEST(TorchScript, AFileThatIsNoneIsNamed) {
  EXPECT_THAT(
      test::error_text(Fault::config, [] { build({.name = "torchscript"}, {}); }),
      HasSubstr("model.file: a model of torchscript is in a file"));
  EXPECT_THAT(test::error_text(
                  Fault::io,
                  [] { build({.name = "torchscript", .file = "/no/where.pt"}, {}); }),
              HasSubstr("there is no file '/no/where.pt'"));
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "bad.pt";
  test::write_file(file, "not a model");
  const auto text = test::error_text(
      Fault::io, [&] { build({.name = "torchscript", .file = file.string()}, {}); });
  EXPECT_THAT(text, HasSubstr("is no TorchScript file"));
  EXPECT_THAT(text, testing::Not(HasSubstr("frame #")));
}

}  // namespace
}  // namespace lockstep::models
