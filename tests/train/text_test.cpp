// Texts in a run: packed rows compute what examples in rows of their own do; prompts
// are continued while a model learns.
#include <filesystem>

#include "lockstep/checkpoint/load.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/join.h"
#include "lockstep/report/report.h"
#include "lockstep/run/events.h"
#include "lockstep/train/trainer.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

class TextRun : public ::testing::Test {
 protected:
  TextRun() {
    const auto texts = folder_.path() / "texts";
    fs::create_directories(texts);
    const std::string lines =
        "{\"prompt\": \"How many?\", \"completion\": \" Seven.\"}\n"
        "{\"prompt\": \"Who\", \"completion\": \" came?\"}\n"
        "{\"text\": \"In the morning.\"}\n"
        "{\"prompt\": \"a\", \"completion\": \"b\"}\n"
        "{\"text\": \"And it rained for forty days.\"}\n";
    test::write_file(texts / "train.jsonl", lines);
    test::write_file(texts / "val.jsonl", lines);
    config_ = test::quick_config();
    config_.model.name = "gpt";
    config_.model.hidden = 16;
    config_.model.layers = 2;
    config_.model.heads = 2;
    config_.data.name = "text";
    config_.data.dir = texts.string();
    config_.data.sequence = 40;
    config_.data.train_samples = config_.data.eval_samples = 0;
    config_.data.text.tokenizer = test::write_byte_tokenizer(folder_.path()).string();
    config_.train.steps = 1;
  }

  run::RunDirectory run_as(const std::string& name) {
    auto run = run::RunDirectory::create(folder_.path() / "runs", {.name = name});
    monitor::Console console({.write = [](std::string_view) {}});
    const StopRequest stop;
    auto world = comm::join({}, {});
    Reporter reporter({run, console}, config_.monitor, {});
    train(test::resolved(config_), {run, reporter, stop, world});
    return run;
  }

  files::TemporaryDirectory folder_;
  config::Config config_;
};

TEST_F(TextRun, PackedRowsHaveTheGradientsOfTheirExamples) {
  // One step over all examples, with a rate of 1: the weights differ by the gradient.
  config_.optim = {};
  config_.optim.name = config::Optimizer::sgd;
  config_.optim.momentum = 0;
  config_.optim.weight_decay = 0;
  config_.optim.lr = 1;
  const auto weights = [&](bool pack, std::int64_t rows) {
    config_.data.text.pack = pack;
    config_.batch.global = config_.batch.micro = rows;
    const auto run = run_as(pack ? "packed" : "apart");
    torch::manual_seed(1);
    auto model = models::build(config_.model, {.input = {40}, .num_classes = 257});
    checkpoint::load_weights(run.path() / "model.safetensors", *model, {});
    return model;
  };
  const auto apart = weights(false, 5), packed = weights(true, 3);
  const auto expected = apart->named_parameters();
  for (const auto& item : packed->named_parameters()) {
    EXPECT_LT((item.value() - expected[item.key()]).abs().max().item<double>(), 1e-6)
        << item.key();
  }
}

TEST_F(TextRun, PromptsAreContinuedBeforeAndAfter) {
  config_.train.steps = 4;
  config_.eval.every = 2;
  config_.eval.prompts = {"How", "Who"};
  config_.eval.prompt_tokens = 5;
  const auto run = run_as("prompts");
  std::vector<std::int64_t> steps;
  for (const auto& event : run::last_events(run.events(), 100)) {
    if (event.kind != "sample") continue;
    EXPECT_EQ(event.fields.at(0).name, "step");
    steps.push_back(std::get<std::int64_t>(event.fields.at(0).value));
  }
  EXPECT_THAT(steps, testing::ElementsAre(0, 0, 2, 2, 4, 4));
  const auto page = report::report_html({run});
  EXPECT_THAT(page, HasSubstr("continued by the model"));
  EXPECT_THAT(page, HasSubstr("<td>How</td>"));
}

TEST_F(TextRun, PromptsNeedATokenizerAndAModelOfText) {
  config_.eval.prompts = {"How"};
  config_.data.name = "synthetic";
  config_.data.dtype = config::SampleType::int64;
  config_.data.shape = {8};
  config_.data.text.tokenizer.clear();
  EXPECT_THAT(test::error_text(Fault::config, [&] { run_as("none"); }),
              HasSubstr("data.tokenizer is not set"));
}

}  // namespace
}  // namespace lockstep::train
