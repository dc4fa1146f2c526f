#include "lockstep/models/script.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "tests/support/support.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;
using torch::Tensor;

// A model that is written as a program and loaded again.
struct Program {
  Program(Model& model, const Named& samples) {
    write_script(model, samples, {file, R"({"task": "any"})"});
    torch::jit::ExtraFilesMap extra{{"lockstep.json", ""}};
    module = torch::jit::load(file, torch::kCPU, extra);
    notes = extra.at("lockstep.json");
  }
  Tensor operator()(const std::vector<Tensor>& inputs) {
    const torch::NoGradGuard no_grad;
    return module.forward({inputs.begin(), inputs.end()}).toTensor();
  }

  files::TemporaryDirectory folder;
  std::string file = (folder.path() / "model.ts").string();
  torch::jit::Module module;
  std::string notes;
};

double difference(const Tensor& a, const Tensor& b) {
  return a.sizes() == b.sizes() ? (a - b).abs().max().item<double>() : INFINITY;
}

TEST(Script, OfAnImageModelComputesWhatItDoesForAnyNumberOfImages) {
  for (const auto* name : {"mlp", "cnn", "resnet9", "resnet18", "resnet50"}) {
    const auto model = build({.name = name, .dropout = 0.3}, {{3, 32, 32}, 7});
    Program program(*model, {{"input", torch::randn({3, 3, 32, 32})}});
    EXPECT_TRUE(model->is_training()) << "it is left as it was";
    model->eval();
    const torch::NoGradGuard no_grad;
    for (const int batch : {1, 5}) {
      const auto input = torch::randn({batch, 3, 32, 32});
      EXPECT_LT(difference(program({input}), model->forward(input)), 1e-5) << name;
    }
  }
}

TEST(Script, HasTheModelsNamesAndEvaluates) {
  const auto model = build({.name = "resnet9"}, {{1, 28, 28}, 10});
  const Program program(*model, {{"input", torch::randn({2, 1, 28, 28})}});
  std::vector<std::string> names, expected;
  for (const auto& item : program.module.named_parameters()) names.push_back(item.name);
  for (const auto& item : model->named_parameters()) expected.push_back(item.key());
  EXPECT_THAT(names, testing::UnorderedElementsAreArray(expected));
  EXPECT_EQ(program.module.named_buffers().size(), model->named_buffers().size());
  EXPECT_FALSE(program.module.is_training());
  EXPECT_EQ(program.notes, R"({"task": "any"})");
  EXPECT_THAT(program.module.type()->name()->qualifiedName(),
              HasSubstr("__torch__.lockstep."));
}

config::ModelConfig tiny_gpt() {
  config::ModelConfig config{.name = "gpt"};
  config.hidden = 16;
  config.layers = 2;
  config.heads = 2;
  config.dropout = 0.1;
  return config;
}

TEST(Script, OfAGptTakesAnyBatchAndAnyLength) {
  auto config = tiny_gpt();
  config.pad_vocabulary = 16;
  const auto model = build(config, {{12}, 50});
  Program program(*model, {{"input", torch::randint(50, {3, 12})}});
  model->eval();
  const torch::NoGradGuard no_grad;
  for (const auto& [batch, length] : {std::pair(1, 12), std::pair(4, 5)}) {
    const auto tokens = torch::randint(50, {batch, length});
    EXPECT_LT(difference(program({tokens}), model->forward(tokens)), 1e-5);
  }
}

TEST(Script, OfAPackedGptKeepsDocumentsApart) {
  Shape shape{{8}, 20};
  shape.tensors = {{.name = "segment", .shape = {8}, .dtype = torch::kInt64}};
  const auto model = build(tiny_gpt(), shape);
  const auto segment =
      torch::tensor({{0, 0, 0, 1, 1, 1, 1, 2}, {0, 0, 0, 0, 0, 1, 1, 1}});
  const auto position =
      torch::tensor({{0, 1, 2, 0, 1, 2, 3, 0}, {0, 1, 2, 3, 4, 0, 1, 2}});
  Named inputs{{"input", torch::randint(20, {2, 8})},
               {"segment", segment},
               {"position", position}};
  Program program(*model, inputs);
  model->eval();
  const torch::NoGradGuard no_grad;
  inputs.set("input", torch::randint(20, {2, 8}));
  inputs.set("segment", segment.flip(0).contiguous());
  inputs.set("position", position.flip(0).contiguous());
  EXPECT_LT(difference(program({inputs.at("input"), inputs.at("segment"),
                                inputs.at("position")}),
                       model->forward_named(inputs).at("output")),
            1e-5);
}

// A tied weight, running statistics, two inputs and two outputs.
class TwoHeads : public Model {
 public:
  TwoHeads() {
    norm_ = register_module("norm", torch::nn::BatchNorm1d(4));
    encoder_ = register_module("encoder", torch::nn::Linear(4, 4));
    tied_ = register_parameter("decoder", encoder_->weight);
  }
  std::vector<std::string> inputs() const override { return {"scan", "age"}; }
  Named forward_named(const Named& inputs) override {
    const auto x = encoder_(norm_(inputs.at("scan"))).relu();
    return {{"organ", torch::linear(x, tied_)}, {"risk", x.sum(1) * inputs.at("age")}};
  }

 private:
  torch::nn::BatchNorm1d norm_{nullptr};
  torch::nn::Linear encoder_{nullptr};
  Tensor tied_;
};

TEST(Script, OutputsOfSeveralNamesAreADictionary) {
  TwoHeads model;
  for (int i = 0; i < 3; ++i) {  // statistics that are none of the beginning
    model.forward_named(
        {{"scan", torch::randn({8, 4}) * 3 + 1}, {"age", torch::ones(8)}});
  }
  Program program(model, {{"scan", torch::randn({3, 4})}, {"age", torch::rand({3})}});
  model.eval();
  const Named inputs{{"scan", torch::randn({6, 4})}, {"age", torch::rand({6})}};
  const torch::NoGradGuard no_grad;
  const auto got = program.module.forward({inputs.at("scan"), inputs.at("age")});
  ASSERT_TRUE(got.isGenericDict());
  for (const auto& [name, tensor] : model.forward_named(inputs)) {
    EXPECT_LT(difference(got.toGenericDict().at(name).toTensor(), tensor), 1e-5)
        << name;
  }
}

class OfFixedBatch : public Model {
 public:
  Tensor forward(const Tensor& x) override { return x.view({x.size(0), -1}) * 2; }
};

class Moody : public Model {
 public:
  Tensor forward(const Tensor& x) override { return x * static_cast<double>(++calls_); }

 private:
  int calls_ = 0;
};

template <typename M>
std::string refusal() {
  M model;
  const files::TemporaryDirectory folder;
  return test::error_text(Fault::config, [&] {
    write_script(model, {{"input", torch::ones({3, 2, 2})}},
                 {folder.path() / "model.ts", "{}"});
  });
}

TEST(Script, AModelWhoseProgramWouldComputeSomethingElseIsRefused) {
  EXPECT_THAT(refusal<OfFixedBatch>(), HasSubstr("with 1 samples it fails ("));
  EXPECT_THAT(refusal<OfFixedBatch>(),
              HasSubstr("sizes of its batch as plain numbers"));
  EXPECT_THAT(refusal<Moody>(), HasSubstr("computes something else than the model"));
  EXPECT_THAT(refusal<Moody>(), HasSubstr("--format safetensors"));
}

TEST(Script, OfATorchScriptIsTheScriptWithItsTrainedWeights) {
  const files::TemporaryDirectory folder;
  const auto file = (folder.path() / "own.pt").string();
  torch::jit::Module script("Scale");
  script.register_parameter("w", torch::ones({3}), false);
  script.define("def forward(self, input):\n    return input * self.w\n");
  script.save(file);
  const auto model = build({.name = "torchscript", .file = file}, {});
  {
    const torch::NoGradGuard no_grad;
    model->parameters()[0].fill_(5);
  }
  Program program(*model, {{"input", torch::ones({2, 3})}});
  EXPECT_EQ(program({torch::ones({1, 3})}).sum().item<double>(), 15);
}

}  // namespace
}  // namespace lockstep::models
