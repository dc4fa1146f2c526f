// Which task a recipe and a data set make, and what is refused.
#include "lockstep/task/build.h"

#include "lockstep/config/load.h"
#include "lockstep/task/primary.h"
#include "tests/support/support.h"

namespace lockstep::task {
namespace {

using data::SampleSpec;
using testing::ElementsAre;
using testing::HasSubstr;

using Words = std::vector<config::Override>;

config::Config recipe(const Words& words) {
  return config::defaults(words, {}).config;
}

SampleSpec images() {
  return {.shape = {3, 8, 8}, .num_classes = 10};
}

SampleSpec tokens() {
  SampleSpec spec{.shape = {16}, .dtype = torch::kInt64, .num_classes = 50};
  spec.target_shape = {16};
  return spec;
}

SampleSpec floats(std::vector<std::int64_t> shape) {
  auto spec = images();
  spec.target_shape = std::move(shape);
  spec.target_dtype = torch::kFloat32;
  spec.num_classes = 0;
  return spec;
}

// Two targets beside an image.
SampleSpec medical() {
  auto spec = images();
  spec.fields = {{.name = "vqa", .shape = {}, .dtype = torch::kInt64},
                 {.name = "chexpert", .shape = {14}},
                 {.name = "vqa_weight", .shape = {}}};
  spec.fields[0].num_classes = 7;
  return spec;
}

const Words kParts{{"task.parts", "{vqa: classification, chexpert: multi_label}"}};

std::string refusal(const Words& words, const SampleSpec& spec,
                    const torch::Tensor& class_weights = {}) {
  return test::error_text(Fault::config,
                          [&] { make_task(recipe(words), spec, class_weights); });
}

TEST(MakeTask, TheDataSetSaysWhichTaskItIs) {
  EXPECT_EQ(make_task(recipe({}), images())->name(), "classification");
  EXPECT_EQ(make_task(recipe({}), tokens())->name(), "language_model");
  EXPECT_EQ(make_task(recipe({}), floats({}))->name(), "regression");
  EXPECT_EQ(make_task(recipe(kParts), medical())->name(), "multi_task");
  auto sentences = tokens();
  sentences.target_shape = {};
  EXPECT_EQ(make_task(recipe({}), sentences)->name(), "classification")
      << "one class for all tokens";
}

TEST(MakeTask, ARecipeMayNameIt) {
  const Words labels{{"task.name", "multi_label"}};
  const auto task = make_task(recipe(labels), floats({14}));
  EXPECT_EQ(task->name(), "multi_label");
  EXPECT_EQ(task->losses()[0].per_sample, 14);
  EXPECT_EQ(make_task(recipe({{"task.name", "classification"}}), tokens())->name(),
            "classification");
}

TEST(MakeTask, PrimaryMetricsHaveTheirDirection) {
  const auto primary = [](const Words& words, const SampleSpec& spec) {
    const auto found = make_task(recipe(words), spec)->primary();
    return str(found.better == Better::less ? "less " : "more ", found.name);
  };
  EXPECT_EQ(primary({}, images()), "more accuracy");
  EXPECT_EQ(primary({}, tokens()), "less perplexity");
  EXPECT_EQ(primary({}, floats({})), "less rmse");
  EXPECT_EQ(primary({{"task.criterion", "huber"}}, floats({})), "less mae");
  EXPECT_EQ(primary({{"task.name", "multi_label"}}, floats({3})), "more auroc");
  EXPECT_EQ(primary(kParts, medical()), "more chexpert_auroc") << "first by name";
  EXPECT_EQ(primary({{"task.primary", "loss"}}, images()), "less loss");
  EXPECT_EQ(primary({{"task.primary", "f1"}, {"eval.metrics", "f1"}}, images()),
            "more f1");
}

TEST(MakeTask, FieldsHaveTheirMeaningByName) {
  auto spec = tokens();
  spec.fields = {{.name = "target_mask", .shape = {16}, .dtype = torch::kBool},
                 {.name = "target_bytes", .shape = {16}, .dtype = torch::kInt64},
                 {.name = "other", .shape = {2}}};
  const auto task = make_task(recipe({}), spec);
  EXPECT_THAT(task->fields(), ElementsAre("target", "target_mask", "target_bytes"));
  EXPECT_EQ(measured_values(*task)[1].name, "bits_per_byte");
  EXPECT_THAT(make_task(recipe(kParts), medical())->fields(),
              ElementsAre("chexpert", "vqa", "vqa_weight"));
}

TEST(MakeTask, ATargetOfVaryingLengthBringsItsMask) {
  auto spec = tokens();
  spec.target_varies = true;
  EXPECT_THAT(make_task(recipe({}), spec)->fields(),
              ElementsAre("target", "target_mask"));
}

TEST(MakeTask, LossesOfPartsHaveTheirCoefficients) {
  auto words = kParts;
  words.push_back({"task.loss", "{vqa: 2, chexpert: 0.5}"});
  words.push_back({"task.loss_final", "{vqa: 0}"});
  words.push_back({"task.loss_ramp_steps", "4"});
  const auto task = make_task(recipe(words), medical());
  EXPECT_EQ(task->losses()[0].name, "chexpert");
  EXPECT_EQ(task->losses()[0].per_sample, 14);
  EXPECT_EQ(task->coefficient(0, 100), 0.5);
  EXPECT_EQ(task->coefficient(1, 0), 2);
  EXPECT_EQ(task->coefficient(1, 2), 1);
  EXPECT_EQ(task->coefficient(1, 9), 0);
}

TEST(MakeTask, AMetricIsOfThePartsThatItFits) {
  auto words = kParts;
  words.push_back({"eval.metrics", "[top_k, f1]"});
  std::vector<std::string> names;
  for (const auto& value : measured_values(*make_task(recipe(words), medical()))) {
    names.push_back(value.name);
  }
  EXPECT_THAT(names, ElementsAre("chexpert_accuracy", "chexpert_auroc", "chexpert_f1",
                                 "vqa_accuracy", "vqa_accuracy_top_5", "vqa_f1"));
}

TEST(MakeTask, IgnoredTargetsAreTheDataSetsUnlessNamed) {
  auto spec = images();
  spec.ignore_index = -1;
  const Named batch{{"target", torch::tensor({-1, 3, 4}, torch::kInt64)}};
  EXPECT_EQ(make_task(recipe({}), spec)->weights(batch, {})[0].item<double>(), 2);
  const Words words{{"task.ignore_index", "3"}};
  EXPECT_EQ(make_task(recipe(words), images())->weights(batch, {})[0].item<double>(),
            2);
  EXPECT_FALSE(make_task(recipe({}), images())->weights(batch, {})[0].defined());
}

TEST(MakeTask, TrainMetricsCanBeSwitchedOff) {
  EXPECT_EQ(make_task(recipe({}), images())->num_training_sums(), 1);
  EXPECT_EQ(
      make_task(recipe({{"train.metrics", "false"}}), images())->num_training_sums(),
      0);
}

TEST(MakeTask, WhatDoesNotFitIsRefusedWithKnobAndRemedy) {
  EXPECT_THAT(refusal({{"task.criterion", "huber"}}, images()),
              HasSubstr("task.criterion: huber is not for a classification task, which "
                        "has auto, cross_entropy, focal"));
  EXPECT_THAT(refusal({{"eval.metrics", "[mae]"}}, images()),
              HasSubstr("eval.metrics: mae is not for a classification task"));
  EXPECT_THAT(refusal({{"eval.metrics", "[bits_per_byte]"}}, tokens()),
              HasSubstr("has no field 'target_bytes'"));
  EXPECT_THAT(
      refusal({{"task.label_smoothing", "0.1"}}, floats({})),
      HasSubstr("task.label_smoothing: would do nothing for a regression task"));
  EXPECT_THAT(
      refusal({{"task.primary", "f1"}}, images()),
      HasSubstr("task.primary: 'f1' is not evaluated; there are loss, accuracy; "
                "eval.metrics adds others"));
  EXPECT_THAT(refusal({}, floats({}), torch::ones({3})),
              HasSubstr("data.class_weights: a regression task has no classes"));
  EXPECT_THAT(refusal({{"task.name", "multi_label"}}, floats({3}), torch::ones({3})),
              HasSubstr("task.positive_weights says what a label weighs"));
}

TEST(MakeTask, ATargetThatATaskCanNotLearnIsRefused) {
  EXPECT_THAT(refusal({{"task.name", "multi_label"}}, images()),
              HasSubstr("task.name: multi_label cannot learn target 'target', which is "
                        "Long of shape []"));
  EXPECT_THAT(refusal({{"task.name", "language_model"}}, floats({4})),
              HasSubstr("tokens are whole numbers"));
  EXPECT_THAT(refusal({{"task.name", "classification"}}, floats({})),
              HasSubstr("set task.name=regression for a number"));
  EXPECT_THAT(
      refusal({{"task.name", "multi_label"}, {"task.positive_weights", "[1, 2]"}},
              floats({3})),
      HasSubstr("task.positive_weights: 2 numbers, but 'target' has 3 labels"));
}

TEST(MakeTask, PartsAreFieldsOfTheDataSet) {
  const Words words{{"task.parts", "{vqb: classification}"}};
  EXPECT_THAT(
      refusal(words, medical()),
      HasSubstr("task.parts: the data set has no field 'vqb' to be the target of "
                "this part; it has target, vqa, chexpert, vqa_weight; did you "
                "mean 'vqa'?"));
  EXPECT_THAT(refusal(kParts, medical(), torch::ones({3})),
              HasSubstr("data.class_weights: are of one target"));
}

}  // namespace
}  // namespace lockstep::task
