#include <torch/csrc/jit/api/module.h>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/models/deferred.h"
#include "lockstep/models/model.h"
#include "lockstep/models/out_of_memory.h"
#include "lockstep/models/summary.h"
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

// A script of one's own, saved and loaded.
struct ScriptFile {
  explicit ScriptFile(const std::string& name = "Script") : script(name) {}

  std::shared_ptr<Model> build_with(const std::string& forward,
                                    const std::vector<std::string>& inputs = {
                                        "input"}) {
    script.define(forward);
    script.save(file);
    config::ModelConfig config{.name = "torchscript", .file = file};
    config.inputs = inputs;
    return build(config, {});
  }

  files::TemporaryDirectory folder;
  std::string file = (folder.path() / "model.pt").string();
  torch::jit::Module script;
};

TEST(TorchScript, ABufferThatForwardAssignsIsTheOneThatIsSaved) {
  ScriptFile of("Mean");
  of.script.register_buffer("mean", torch::zeros({3}));
  const auto model = of.build_with(
      "def forward(self, input):\n"
      "    self.mean = 0.5 * self.mean + input.mean(0)\n"
      "    return input - self.mean\n");
  const auto buffer = model->named_buffers()["mean"];
  const Named inputs{{"input", torch::ones({2, 3})}};
  model->forward_named(inputs);
  EXPECT_EQ(buffer[0].item<double>(), 1);
  {
    const torch::NoGradGuard no_grad;
    EXPECT_EQ(model->forward_named(inputs).at("output").sum().item<double>(), -3);
    EXPECT_EQ(buffer[0].item<double>(), 1.5);
    buffer.zero_();  // as what is loaded from a checkpoint
    model->forward_named(inputs);
  }
  EXPECT_EQ(buffer[0].item<double>(), 1);
  EXPECT_TRUE(model->named_buffers()["mean"].is_same(buffer));
}

TEST(TorchScript, ABufferOfASubmoduleThatIsAssignedIsSaved) {
  torch::jit::Module counter("Counter");
  counter.register_buffer("calls", torch::zeros({1}, torch::kInt64));
  counter.define(
      "def forward(self, x):\n"
      "    self.calls = self.calls + 1\n"
      "    return x\n");
  ScriptFile of;
  of.script.register_module("inner", counter);
  const auto model = of.build_with(
      "def forward(self, input):\n    return self.inner.forward(input)\n");
  for (int i = 0; i < 3; ++i) model->forward_named({{"input", torch::ones({1})}});
  EXPECT_EQ(model->named_buffers()["inner.calls"].item<std::int64_t>(), 3);
}

// Autograd keeps what the buffer was: a gradient must not be computed from what is
// assigned afterwards.
TEST(TorchScript, AnAssignedBufferIsInTheGradientAsItWas) {
  ScriptFile of;
  of.script.register_parameter("w", torch::ones({3}, torch::requires_grad()), false);
  of.script.register_buffer("m", torch::full({3}, 2.0));
  const auto model = of.build_with(
      "def forward(self, input):\n"
      "    product = self.w * self.m\n"
      "    self.m = self.m + input\n"
      "    return product\n");
  for (const double value : {2.0, 3.0}) {
    model->zero_grad();
    const auto output = model->forward_named({{"input", torch::ones({3})}});
    output.at("output").sum().backward();
    EXPECT_EQ(model->named_parameters()["w"].grad()[0].item<double>(), value);
    EXPECT_EQ(model->named_buffers()["m"][0].item<double>(), value + 1);
  }
}

TEST(TorchScript, ABufferThatChangesItsShapeOrTypeIsRefused) {
  const auto refusal = [](const std::string& value) {
    ScriptFile of;
    of.script.register_buffer("m", torch::zeros({3}));
    const auto model = of.build_with(
        "def forward(self, input):\n    self.m = " + value + "\n    return input\n");
    const auto text = test::error_text(Fault::config, [&] {
      model->forward_named({{"input", torch::ones({2}, torch::kInt64)}});
    });
    EXPECT_EQ(model->named_buffers()["m"].sum().item<double>(), 0);
    return text;
  };
  EXPECT_THAT(refusal("input * 0.5"),
              HasSubstr("assigns its buffer m, which is [3] float32, a tensor that is "
                        "[2] float32; keep"));
  EXPECT_THAT(refusal("input.new_ones([3])"), HasSubstr("[3] int64; keep"));
}

TEST(TorchScript, AnErrorInForwardIsOneLineWithWhatItGot) {
  const auto refusal = [](const std::string& body) {
    ScriptFile of;
    of.script.register_buffer("w", torch::zeros({4, 2}));
    const auto model = of.build_with("def forward(self, input):\n" + body +
                                     "    return input.matmul(self.w)\n");
    const auto text = test::error_text(Fault::config, [&] {
      model->forward_named({{"input", torch::ones({5, 3})}});
    });
    EXPECT_THAT(
        text, testing::StartsWith("model.file: '" + of.file + "' failed in forward: "));
    EXPECT_THAT(text, HasSubstr("; it got input [5, 3] float32; "));
    EXPECT_THAT(text, testing::Not(HasSubstr("\n")));
    return text;
  };
  EXPECT_THAT(refusal(""), HasSubstr("forward: mat1 and mat2 shapes cannot be "
                                     "multiplied (5x3 and 4x2); it got"));
  EXPECT_THAT(refusal("    assert input.size(0) <= 3, 'too many'\n"),
              HasSubstr("too many; it got"));
}

TEST(TorchScript, AnErrorInATracedFileIsTheOperatorsToo) {
  LOCKSTEP_NEEDS_ORACLE();
  const Written written("traced");
  const auto model =
      build({.name = "torchscript", .file = written.file.string()}, {{1, 28, 28}, 10});
  const auto text = test::error_text(Fault::config, [&] {
    model->forward_named({{"input", torch::ones({2, 5})}});
  });
  EXPECT_THAT(text, HasSubstr("failed in forward: mat1 and mat2 shapes cannot be"));
}

// The trainer tries again with a smaller batch.
TEST(TorchScript, NoRoomForATensorIsNotTheScriptsFault) {
  ScriptFile of;
  const auto model = of.build_with(
      "def forward(self, input):\n"
      "    return input.new_zeros([36028797018963968])\n");  // 2^55
  try {
    model->forward_named({{"input", torch::ones({1})}});
    FAIL() << "it was allocated";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_out_of_memory(error)) << error.what();
    EXPECT_EQ(dynamic_cast<const Error*>(&error), nullptr) << error.what();
  }
}

TEST(TorchScript, AsManyInputsAreNamedAsForwardTakes) {
  const auto refusal = [](const std::vector<std::string>& inputs) {
    ScriptFile of;
    return test::error_text(Fault::config, [&] {
      of.build_with("def forward(self, scan, age, more: int = 3):\n    return scan\n",
                    inputs);
    });
  };
  EXPECT_THAT(refusal({}), HasSubstr("takes (scan, age, more), but the names are []; "
                                     "name a tensor of the data for each"));
  EXPECT_THAT(refusal({"a"}), testing::StartsWith("model.inputs: forward of '"));
  EXPECT_THAT(refusal({"a", "b", "c", "d"}), HasSubstr("the names are [a, b, c, d]"));
  ScriptFile of;
  EXPECT_NO_THROW(of.build_with(
      "def forward(self, scan, age, more: int = 3):\n    return scan\n", {"a", "b"}));
}

// A plan describes models without memory, but a script's values are in its file.
TEST(TorchScript, IsLoadedWhereModelsAreBuiltWithoutMemory) {
  ScriptFile of;
  of.script.register_parameter("w", torch::ones({3}), false);
  const DeferredMemory deferred;
  const auto model =
      of.build_with("def forward(self, input):\n    return input * self.w\n");
  EXPECT_TRUE(model->parameters()[0].is_cpu());
}

TEST(TorchScript, LayersHaveTheTypesOfTheScript) {
  torch::jit::Module scale("Scale");
  scale.register_parameter("weight", torch::ones({3}), false);
  scale.define("def forward(self, x):\n    return x * self.weight\n");
  ScriptFile of;
  of.script.register_module("inner", scale);
  const auto model = of.build_with(
      "def forward(self, input):\n    return self.inner.forward(input)\n");
  const auto layers = summarize(*model);
  ASSERT_EQ(layers.size(), 1U);
  EXPECT_EQ(layers[0].name, "inner");
  EXPECT_EQ(layers[0].type, "Scale");
}

// It may be a stranger's: what it would do it would do as whoever trains it.
TEST(TorchScript, AProgramThatOpensFilesByNameIsRefusedBeforeItRuns) {
  LOCKSTEP_NEEDS_ORACLE();
  for (const auto* kind : {"saver", "reader", "loaded_saver"}) {
    const Written written(kind);
    const auto text = test::error_text(Fault::config, [&] {
      build({.name = "torchscript", .file = written.file.string()}, {{1, 28, 28}, 10});
    });
    EXPECT_THAT(text, HasSubstr("opens files by name")) << kind;
    EXPECT_FALSE(std::filesystem::exists(written.file.string() + ".written")) << kind;
  }
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
  EXPECT_THAT(text,
              HasSubstr("is not a TorchScript file; write it with torch.jit.save"));
  EXPECT_THAT(text, testing::Not(HasSubstr("miniz")));
  EXPECT_THAT(text, testing::Not(HasSubstr("frame #")));
}

}  // namespace
}  // namespace lockstep::models
