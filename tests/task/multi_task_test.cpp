#include "lockstep/task/multi_task.h"

#include "lockstep/task/primary.h"
#include "tests/comm/ranks.h"
#include "tests/task/cases.h"

namespace lockstep::task {
namespace {

using testing::ElementsAre;

std::vector<std::string> names_in(const std::vector<MetricValue>& values) {
  std::vector<std::string> names;
  for (const auto& value : values) names.push_back(value.name);
  return names;
}

TEST(MultiTask, HasTheLossesOfItsPartsByTheirNames) {
  torch::manual_seed(1);
  const auto several = multi_case();
  const auto& losses = several.task->losses();
  ASSERT_EQ(losses.size(), 2U);
  EXPECT_EQ(losses[0].name, "vqa");
  EXPECT_EQ(losses[1].name, "findings");
  EXPECT_EQ(losses[1].per_sample, kNumLabels);
  EXPECT_THAT(several.task->fields(), ElementsAre("vqa", "findings"));
  const auto alone =
      make_multi_label({.fields = {.output = "findings", .target = "findings"},
                        .num_labels = kNumLabels});
  EXPECT_TRUE(several.task->sums(several.outputs, several.batch, {})[1].equal(
      alone->sums(several.outputs, several.batch, {})[0]));
}

TEST(MultiTask, CoefficientsFollowAStraightLine) {
  const auto several = multi_case();
  for (const auto step : {0, 5, 1000}) {
    EXPECT_EQ(several.task->coefficient(0, step), 1) << "no other one was named";
  }
  EXPECT_DOUBLE_EQ(several.task->coefficient(1, 0), 0.5);
  EXPECT_DOUBLE_EQ(several.task->coefficient(1, 5), 1.25);
  EXPECT_DOUBLE_EQ(several.task->coefficient(1, 10), 2);
  EXPECT_DOUBLE_EQ(several.task->coefficient(1, 1000), 2);
}

TEST(MultiTask, MetricsAreThoseOfItsPartsWithTheirPrefix) {
  torch::manual_seed(1);
  const auto several = multi_case();
  test::with_communicators(test::Rig::local, 2, [&](comm::Communicator& c) {
    auto metrics = several.task->metrics();
    if (c.rank() == 0) metrics.observe(several.outputs, several.batch);
    const auto values = metrics.values(c);
    EXPECT_THAT(names_in(values),
                ElementsAre("vqa_accuracy", "findings_accuracy", "findings_auroc"));
    for (const auto& value : values) EXPECT_GT(value.value, 0) << value.name;
  });
}

TEST(MultiTask, ThePrimaryMetricIsTheFirstPartsOrTheNamedOne) {
  EXPECT_EQ(multi_case().task->primary().name, "vqa_accuracy");
  const auto tokens = make_language_model({});
  const auto with = [&](const std::string& primary) {
    return make_multi_task({.parts = {{"text", tokens}, {"value", make_regression({})}},
                            .primary = primary});
  };
  EXPECT_EQ(with("")->primary().name, "text_perplexity");
  EXPECT_EQ(with("")->primary().better, Better::less);
  EXPECT_EQ(with("text_accuracy")->primary().better, Better::more);
  EXPECT_EQ(with("loss_value")->primary().better, Better::less);
  EXPECT_EQ(with("loss")->primary().better, Better::less);
  EXPECT_THAT(test::error_text(Fault::config, [&] { with("text_accurate"); }),
              testing::AllOf(testing::HasSubstr("task.primary: 'text_accurate' is not "
                                                "evaluated; there are loss, loss_text, "
                                                "loss_value"),
                             testing::HasSubstr("did you mean 'text_accuracy'?")));
}

TEST(MultiTask, APrimaryMetricThatIsALossHasTheNameThatIsReported) {
  const auto by_loss = make_regression({.measured = {.primary = "loss"}});
  const auto plain = make_regression({});
  EXPECT_EQ(make_multi_task({.parts = {TaskPart{"a", by_loss}}})->primary().name,
            "loss");
  const auto two = make_multi_task({.parts = {{"a", by_loss}, {"b", plain}}});
  EXPECT_EQ(two->primary().name, "loss_a");
  const auto inner =
      make_multi_task({.parts = {{"a", plain}, {"b", plain}}, .primary = "loss_b"});
  const auto outer = make_multi_task({.parts = {{"in", inner}, {"c", plain}}});
  EXPECT_EQ(outer->primary().name, "loss_in_b");
  for (const auto& task : {two, outer}) {
    EXPECT_EQ(find_primary(*task, task->primary().name, "task.primary").better,
              Better::less);
  }
}

TEST(MultiTask, TrainingValuesCountTheTargetsOfEachPart) {
  const auto part = [](const std::string& name, std::int64_t per_sample) {
    ClassificationOptions options;
    options.fields = {.output = name, .target = name};
    options.per_sample = per_sample;
    return TaskPart{name, make_classification(options)};
  };
  const auto task = make_multi_task({.parts = {part("one", 2), part("two", 5)}});
  const double sums[] = {3, 10};
  const auto values = task->training_values(sums, 8);  // of 4 samples
  EXPECT_THAT(names_in(values), ElementsAre("one_accuracy", "two_accuracy"));
  EXPECT_EQ(values[0].value, 3.0 / 8);
  EXPECT_EQ(values[1].value, 10.0 / 20);
}

TEST(MultiTask, PartsHaveNamesOfTheirOwn) {
  EXPECT_THAT(test::error_text(Fault::config, [] { make_multi_task({}); }),
              testing::HasSubstr("there is no part"));
  const auto task = make_regression({});
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] {
                                 make_multi_task({.parts = {{"x", task}, {"x", task}}});
                               }),
              testing::HasSubstr("two parts are called 'x'"));
}

}  // namespace
}  // namespace lockstep::task
