// Weights of GPT-2 from transformers to us, and back.
#include "lockstep/checkpoint/load.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/saver.h"
#include "lockstep/config/print.h"
#include "lockstep/hf/export.h"
#include "lockstep/hf/settle.h"
#include "lockstep/models/model.h"
#include "lockstep/storage/weights_file.h"
#include "tests/support/hf_model.h"
#include "tests/support/oracle.h"

namespace lockstep::models {
namespace {

using Tensors = std::map<std::string, torch::Tensor>;

Tensors read_all(const files::Path& file) {
  const storage::WeightsFile content(file);
  Tensors tensors;
  for (std::size_t i = 0; i < content.tensors().size(); ++i) {
    const auto& entry = content.tensors()[i];
    auto tensor = torch::empty(entry.shape,
                               entry.dtype == "I64" ? torch::kInt64 : torch::kFloat32);
    auto* to = static_cast<std::byte*>(tensor.mutable_data_ptr());
    content.read(i, [&](std::span<const std::byte> piece) {
      std::memcpy(to, piece.data(), piece.size());
      to += piece.size();
    });
    tensors[entry.name] = tensor;
  }
  return tensors;
}

double worst_of(const torch::Tensor& a, const torch::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// Logits within 1e-4, loss and gradients within 1e-4 of their size.
void expect_shown(Model& model, const Tensors& shown) {
  const auto logits = model.forward(shown.at("tokens"));
  EXPECT_LT(worst_of(logits, shown.at("logits")), 1e-4);
  const auto loss =
      torch::cross_entropy_loss(logits.flatten(0, 1), shown.at("targets").flatten());
  const auto theirs = shown.at("loss").item<double>();
  EXPECT_NEAR(loss.item<double>(), theirs, 1e-4 * theirs);
  loss.backward();
  for (const auto& item : model.named_parameters()) {
    const auto& wanted = shown.at("gradient." + item.key());
    const auto got = item.value().grad().narrow(0, 0, wanted.size(0));
    const auto distance = (got - wanted).norm().item<double>();
    // The biases of keys have no gradient but for rounding; the others of c_attn do.
    EXPECT_LT(distance, 1e-4 * wanted.norm().item<double>()) << item.key();
  }
}

class HfWeightsHere : public testing::Test {
 protected:
  void make(const std::string& size) {
    test::expect_oracle_agrees("hf_gpt2.py", {"make", path("").string(), size});
  }
  files::Path path(const std::string& name) const { return folder_.path() / name; }

  // What transformers has to make of our weights.
  void show(const config::Config& config, Model& model) const {
    const torch::NoGradGuard no_grad;
    model.eval();
    const auto tokens =
        torch::randint(config.data.classes, {2, config.data.sequence}, torch::kInt64);
    checkpoint::write_safetensors(
        path("ours.safetensors"),
        {{"tokens", tokens}, {"logits", model.forward(tokens)}});
  }

  files::TemporaryDirectory folder_;
};

TEST_F(HfWeightsHere, WeightsOfTransformersComputeTheSameHere) {
  LOCKSTEP_NEEDS_ORACLE();
  make("tiny");
  const auto shown = read_all(path("shown.safetensors"));
  for (const std::string kind : {"whole", "sharded", "bare", "bin"}) {
    for (const std::string pad : {"1", "64"}) {
      SCOPED_TRACE(kind + " " + pad);
      const auto config =
          test::settled_recipe(path(kind), {"model.pad_vocabulary=" + pad}).config;
      EXPECT_EQ(config.model.context, 24);
      expect_shown(*test::model_with_weights(config), shown);
    }
  }
}

TEST_F(HfWeightsHere, WeightsOfTransformersComputeTheSameHereAt124Million) {
  LOCKSTEP_NEEDS_ORACLE();
  make("124m");
  const auto config = test::settled_recipe(path("whole"), {}).config;
  EXPECT_EQ(config.data.classes, 50257);
  expect_shown(*test::model_with_weights(config), read_all(path("shown.safetensors")));
}

// A checkpoint of nothing but the model.
storage::Reader saved(const files::Path& folder, const Model& model,
                      const config::Loaded& config) {
  checkpoint::Saver saver({.checkpoints = folder});
  checkpoint::Pieces pieces;
  for (const auto& item : model.named_parameters()) {
    pieces.push_back(
        checkpoint::whole_piece("model." + item.key(), item.value().detach()));
  }
  saver.begin(pieces, {.step = 1, .config = config::to_yaml(config, false)});
  saver.fence();
  while (!saver.on_ballots({{.flags = saver.flags()}})) {
    saver.wait(std::chrono::milliseconds(20));
  }
  return storage::Reader(folder / "step_1");
}

TEST_F(HfWeightsHere, OurWeightsComputeTheSameInTransformersAt124Million) {
  LOCKSTEP_NEEDS_ORACLE();
  const std::vector<config::Override> knobs = {
      {"model.name", "gpt"},     {"model.size", "gpt2"},
      {"model.context", "1024"}, {"data.name", "tokens"},
      {"data.dir", "/none"},     {"data.sequence", "20"},
      {"data.classes", "50257"}, {"model.pad_vocabulary", "128"}};
  const auto loaded = config::defaults(knobs, {});
  const auto& config = loaded.config;
  torch::manual_seed(3);
  const auto model = build(config.model, {{20}, 50257});
  {
    const torch::NoGradGuard no_grad;
    for (auto& p : model->parameters()) {
      if (p.dim() == 1) p.add_(torch::randn_like(p), 0.05);
    }
  }
  show(config, *model);
  const auto reader = saved(path("checkpoints"), *model, loaded);
  hf::Export job{.reader = reader, .sources = {}, .config = config, .tokenizer = {}};
  for (const auto& item : model->named_parameters()) {
    job.sources[item.key()] = "model." + item.key();
  }
  std::filesystem::create_directories(path("exported"));
  hf::export_gpt2(job, path("exported"));
  const auto written = hf::read_gpt2(path("exported"));
  EXPECT_EQ(written.vocabulary, 50257);
  EXPECT_EQ(written.last_token, 50256);
  test::expect_oracle_agrees("hf_gpt2.py", {"read", path("exported").string(),
                                            path("ours.safetensors").string()});
}

}  // namespace
}  // namespace lockstep::models
