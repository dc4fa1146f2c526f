// Weights that PyTorch trained work here, and ours there.
#include "lockstep/checkpoint/load.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/models/model.h"
#include "tests/support/oracle.h"

namespace lockstep::checkpoint {
namespace {

// An input, and what a model makes of it.
struct Shown : torch::nn::Module {
  Shown() {
    x = register_buffer("x", torch::zeros({16, 1, 28, 28}));
    logits = register_buffer("logits", torch::zeros({16, 10}));
  }
  torch::Tensor x, logits;
};

std::shared_ptr<models::Model> model_of(const std::string& name,
                                        const files::Path& weights) {
  auto model = models::build({.name = name}, {{1, 28, 28}, 10});
  load_weights(weights, *model, {});
  model->eval();
  return model;
}

double difference(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

process::Output command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), test::binary("lockstep").string());
  auto output = process::run({.arguments = arguments}, std::chrono::minutes(2));
  EXPECT_EQ(output.end.shell_status(), 0) << output.out << output.err;
  return output;
}

class PyTorchWeights : public testing::Test {
 protected:
  void train_in_pytorch() {
    test::expect_oracle_agrees("weights.py", {"train", folder_.path().string()});
  }
  files::Path path(const std::string& name) const { return folder_.path() / name; }

  files::TemporaryDirectory folder_;
};

TEST_F(PyTorchWeights, GiveTheSameOutputHere) {
  LOCKSTEP_NEEDS_ORACLE();
  train_in_pytorch();
  for (const std::string name : {"cnn", "mlp"}) {
    const torch::NoGradGuard no_grad;
    Shown shown;
    load_weights(path(name + "_shown.safetensors"), shown, {});
    const auto untrained = models::build({.name = name}, {{1, 28, 28}, 10});
    EXPECT_GT(difference(untrained->forward(shown.x), shown.logits), 0.01);
    command({"checkpoint", "import", path(name + ".pt").string(), "--to",
             path(name + "_imported.safetensors").string()});
    for (const auto* file : {".safetensors", "_imported.safetensors"}) {
      const auto model = model_of(name, path(name + file));
      EXPECT_LT(difference(model->forward(shown.x), shown.logits), 1e-6)
          << name << file;
    }
  }
}

TEST_F(PyTorchWeights, AreTrainedHereByTwoRanksAndReadThereAgain) {
  LOCKSTEP_NEEDS_ORACLE();
  train_in_pytorch();
  const auto recipe = test::source_root() / "recipes" / "fashion_mnist_quick.yaml";
  for (const std::string name : {"cnn", "mlp"}) {
    const torch::NoGradGuard no_grad;
    const auto run = path(name + "_run");
    const auto weights = path(name + ".safetensors");
    const auto exported = path(name + "_exported.safetensors");
    command({"train", recipe.string(), "--run-dir", run.string(), "--ranks", "2",
             "parallel.device=cpu", "parallel.threads=1", "parallel.shard_update=on",
             "data.train_samples=250", "data.eval_samples=61", "train.steps=4",
             "checkpoint.every=2", "model.name=" + name,
             "model.weights=" + weights.string()});
    command({"checkpoint", "export", run.string(), "--to", exported.string()});
    Shown shown;
    load_weights(path(name + "_shown.safetensors"), shown, {});
    const auto now = model_of(name, exported)->forward(shown.x);
    EXPECT_GT(difference(now, shown.logits), 1e-3) << "it was trained";
    EXPECT_TRUE(
        torch::equal(now, model_of(name, run / "model.safetensors")->forward(shown.x)));
    const auto file = path(name + "_now.safetensors");
    write_safetensors(file, {{"x", shown.x}, {"logits", now}});
    test::expect_oracle_agrees("weights.py",
                               {"read", exported.string(), file.string(), name});
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
