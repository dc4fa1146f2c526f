// What every task promises: sums that do not depend on how a batch is cut, no look at
// values while training, and passes without rows.
#include "lockstep/task/task.h"

#include "lockstep/task/primary.h"
#include "tests/support/support.h"
#include "tests/task/cases.h"

namespace lockstep::task {
namespace {

using torch::Tensor;

Named rows_of(const Named& all, std::int64_t begin, std::int64_t end) {
  Named some;
  for (const auto& [name, tensor] : all) some.set(name, tensor.slice(0, begin, end));
  return some;
}

// Leaves of their own, so that gradients can be asked for.
Named with_gradients(const Named& all) {
  Named leaves;
  for (const auto& [name, tensor] : all) {
    leaves.set(name, tensor.detach().clone().requires_grad_(true));
  }
  return leaves;
}

struct Means {
  std::vector<double> values;
  std::vector<Tensor> gradients;
};

// As a step does it: the sums of all parts over what all targets weigh.
Means means_in(const TaskCase& one, const std::vector<std::int64_t>& cuts,
               const Pass& pass = {}) {
  const auto leaves = with_gradients(one.outputs);
  const auto count = one.task->losses().size();
  std::vector<Tensor> sums(count);
  std::vector<double> weights(count, 0);
  std::int64_t begin = 0;
  for (const auto end : cuts) {
    const auto batch = rows_of(one.batch, begin, end);
    const auto some = one.task->sums(rows_of(leaves, begin, end), batch, pass);
    const auto weigh = one.task->weights(batch, pass);
    for (std::size_t i = 0; i < count; ++i) {
      sums[i] = sums[i].defined() ? sums[i] + some[i] : some[i];
      weights[i] +=
          weigh[i].defined()
              ? weigh[i].item<double>()
              : static_cast<double>((end - begin) * one.task->losses()[i].per_sample);
    }
    begin = end;
  }
  Means means;
  Tensor all = torch::zeros({});
  for (std::size_t i = 0; i < count; ++i) {
    const auto mean = sums[i] / weights[i];
    means.values.push_back(mean.item<double>());
    all = all + mean * one.task->coefficient(i, 0);
  }
  std::vector<Tensor> inputs;
  for (const auto& leaf : leaves) inputs.push_back(leaf.tensor);
  means.gradients = torch::autograd::grad({all}, inputs);
  return means;
}

TEST(Task, LossesDoNotDependOnHowABatchIsCut) {
  for (const auto& one : task_cases()) {
    const auto whole = means_in(one, {kRows});
    for (const auto& cuts : std::vector<std::vector<std::int64_t>>{
             {5, kRows}, {1, 2, kRows}, {0, 7, kRows}, {4, 4, kRows}}) {
      const auto parts = means_in(one, cuts);
      for (std::size_t i = 0; i < whole.values.size(); ++i) {
        EXPECT_NEAR(parts.values[i], whole.values[i], 1e-6) << one.name;
      }
      for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
        EXPECT_TRUE(parts.gradients[i].allclose(whole.gradients[i], 0, 1e-6))
            << one.name;
      }
    }
  }
}

TEST(Task, APassWithoutRowsHasASumOfZeroWithGradients) {
  for (const auto& one : task_cases()) {
    const auto leaves = with_gradients(rows_of(one.outputs, 0, 0));
    const auto batch = rows_of(one.batch, 0, 0);
    for (const bool training : {true, false}) {
      const auto sums = one.task->sums(leaves, batch, {.training = training});
      for (const auto& sum : sums) {
        EXPECT_EQ(sum.item<double>(), 0) << one.name;
        EXPECT_TRUE(sum.requires_grad()) << one.name;
        sum.backward();
      }
      for (const auto& weight : one.task->weights(batch, {.training = training})) {
        if (!weight.defined()) continue;
        EXPECT_EQ(weight.item<double>(), 0) << one.name;
      }
    }
    auto kept = torch::zeros({one.task->num_training_sums()}, torch::kFloat64);
    one.task->add_training_sums(leaves, batch, kept);
    EXPECT_EQ(kept.sum().item<double>(), 0) << one.name;
    auto metrics = one.task->metrics();
    EXPECT_NO_THROW(metrics.observe(leaves, batch)) << one.name;
  }
}

// A meta tensor has no values: whoever looks at one throws.
TEST(Task, TrainingLooksAtNoValue) {
  const auto meta = [](const Named& all) {
    Named shapes;
    for (const auto& [name, tensor] : all) shapes.set(name, tensor.to(torch::kMeta));
    return shapes;
  };
  for (const auto& one : task_cases()) {
    const auto outputs = with_gradients(meta(one.outputs));
    const auto batch = meta(one.batch);
    auto kept = torch::zeros({one.task->num_training_sums()},
                             torch::dtype(torch::kFloat64).device(torch::kMeta));
    EXPECT_NO_THROW({
      for (const auto& sum : one.task->sums(outputs, batch, {})) sum.backward();
      one.task->weights(batch, {});
      one.task->add_training_sums(outputs, batch, kept);
    }) << one.name;
  }
}

TEST(Task, NamesTheFieldsThatItLooksAt) {
  for (const auto& one : task_cases()) {
    Named few;
    for (const auto& name : one.task->fields()) few.set(name, one.batch.at(name));
    EXPECT_NO_THROW({
      one.task->sums(one.outputs, few, {});
      one.task->weights(few, {});
      one.task->metrics().observe(one.outputs, few);
    }) << one.name;
  }
}

TEST(Task, ItsPrimaryMetricIsOneThatItMeasures) {
  for (const auto& one : task_cases()) {
    const auto primary = one.task->primary();
    const auto found = find_primary(*one.task, primary.name, "task.primary");
    EXPECT_EQ(found.better, primary.better) << one.name;
    EXPECT_NE(primary.name, "loss") << one.name;
  }
}

// The operators of the loop before there were tasks, in their order.
TEST(Task, ClassificationGivesTheBitsOfCrossEntropy) {
  torch::manual_seed(3);
  const auto weights = torch::tensor({1.0F, 5.0F, 0.0F, 0.25F});
  for (const bool weighs : {false, true}) {
    const auto task =
        make_classification({.loss = {.class_weights = weighs ? weights : Tensor()},
                             .num_classes = kNumClasses});
    for (const bool soft : {false, true}) {
      const auto logits =
          torch::randn({kRows, kNumClasses}).to(torch::kBFloat16).requires_grad_(true);
      const auto targets =
          soft ? torch::rand({kRows, kNumClasses}).softmax(1) : some_classes({kRows});
      const auto theirs =
          torch::cross_entropy_loss(logits.to(torch::kFloat32), targets,
                                    weighs ? weights : Tensor(), at::Reduction::Sum);
      const Named outputs{{"output", logits}}, batch{{"target", targets}};
      const auto ours = task->sums(outputs, batch, {})[0];
      EXPECT_TRUE(ours.equal(theirs));
      EXPECT_TRUE(torch::autograd::grad({ours}, {logits})[0].equal(
          torch::autograd::grad({theirs}, {logits})[0]));
      const auto weight = task->weights(batch, {})[0];
      EXPECT_EQ(weight.defined(), weighs && !soft);
      if (weight.defined()) {
        EXPECT_TRUE(
            weight.equal(weights.index_select(0, targets).sum(torch::kFloat64)));
      }
      EXPECT_FALSE(task->weights(batch, {.training = false})[0].defined());
      auto kept = torch::zeros({1}, torch::kFloat64);
      task->add_training_sums(outputs, batch, kept);
      const auto answers = soft ? targets.argmax(1) : targets;
      EXPECT_EQ(kept[0].item<double>(),
                logits.argmax(1).eq(answers).sum().item<double>());
    }
  }
}

TEST(Task, AccuracyWhileTrainingIsOfTheTargetsThatCount) {
  const auto logits = torch::tensor({{2.0F, 1.0F}, {2.0F, 1.0F}, {2.0F, 1.0F}});
  const Named outputs{{"output", logits}};
  const Named batch{{"target", torch::tensor({0, 1, -1}, torch::kInt64)}};
  const auto task = make_classification({.loss = {.ignore_index = -1}});
  ASSERT_EQ(task->num_training_sums(), 2);
  auto kept = torch::zeros({2}, torch::kFloat64);
  task->add_training_sums(outputs, batch, kept);
  const auto values = task->training_values(kept.const_data_ptr<double>(), 3);
  ASSERT_EQ(values.size(), 1U);
  EXPECT_EQ(values[0].name, "accuracy");
  EXPECT_EQ(values[0].value, 0.5);
  EXPECT_TRUE(values[0].is_share);
}

TEST(Task, WithoutTrainingMetricsNothingIsKept) {
  EXPECT_EQ(make_classification({.trains_metrics = false})->num_training_sums(), 0);
  EXPECT_EQ(make_multi_label({.trains_metrics = false})->num_training_sums(), 0);
  EXPECT_EQ(make_language_model({})->num_training_sums(), 0)
      << "no step looks for the most likely token";
}

TEST(Task, AMaskOfAnotherShapeIsRefused) {
  const auto task = make_regression({.fields = {.mask = "mask"}});
  const Named outputs{{"output", torch::zeros({4, 2})}};
  const Named batch{{"target", torch::zeros({4, 2})}, {"mask", torch::ones({3})}};
  EXPECT_THAT(test::error_text(Fault::config, [&] { task->sums(outputs, batch, {}); }),
              testing::HasSubstr("field 'mask' has shape [3], but its targets have "
                                 "[4, 2]"));
}

// A model is looked at with a batch of no samples before the first step.
TEST(Task, AMaskOfAnotherShapeIsNamedWithoutTheBatch) {
  const auto task = make_regression({.fields = {.mask = "mask"}});
  const Named outputs{{"output", torch::zeros({0})}};
  const Named batch{{"target", torch::zeros({0})}, {"mask", torch::ones({0, 3})}};
  EXPECT_THAT(test::error_text(Fault::config, [&] { task->sums(outputs, batch, {}); }),
              testing::HasSubstr("field 'mask' of a sample has shape [3], but its "
                                 "targets have []"));
}

TEST(Task, AnOutputOfAnotherShapeIsRefused) {
  const Named wide{{"output", torch::zeros({4, 3})}};
  const Named batch{{"target", torch::zeros({4})}};
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] { make_regression({})->sums(wide, batch, {}); }),
              testing::HasSubstr("output 'output' has shape [4, 3]"));
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] { make_multi_label({})->sums(wide, batch, {}); }),
              testing::HasSubstr("labels need a score for each"));
  const Named flat{{"output", torch::zeros({4})}};
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] { make_classification({})->sums(flat, batch, {}); }),
              testing::HasSubstr("(batch, classes)"));
}

// Rows in another order than the targets would be learnt in silence.
TEST(Task, ScoresOfOtherRowsThanTheTargetsAreRefused) {
  const auto task = make_classification({});
  const auto error_of = [&](at::IntArrayRef scores, const Tensor& target) {
    return test::error_text(Fault::config, [&] {
      task->sums({{"output", torch::zeros(scores)}}, {{"target", target}}, {});
    });
  };
  const auto tokens = torch::zeros({2, 3}, torch::kInt64);
  EXPECT_THAT(error_of({3, 2, 4}, tokens),
              testing::HasSubstr("output 'output' has shape [3, 2, 4], but target "
                                 "'target' has [2, 3]"));
  EXPECT_THAT(error_of({5, 4}, tokens.select(0, 0)), testing::HasSubstr("[5, 4]"));
  EXPECT_THAT(error_of({3, 2, 4}, torch::full({2, 3, 4}, 0.25)),
              testing::HasSubstr("a row of scores for each target"));
  const auto fits = [&](at::IntArrayRef scores) {
    task->sums({{"output", torch::zeros(scores)}}, {{"target", tokens}}, {});
  };
  EXPECT_NO_THROW(fits({2, 3, 4}));
  EXPECT_NO_THROW(fits({6, 4})) << "rows that the model has put one after the other";
}

// LibTorch would speak of an index; on a GPU it would end the process.
TEST(Task, AModelOfTooFewClassesIsRefused) {
  const Named four{{"output", torch::zeros({2, 4})}};
  const Named classes{{"target", torch::tensor({0, 9}, torch::kInt64)}};
  const Named shares{{"target", torch::full({2, 3}, 1 / 3.0F)}};
  const auto ten = make_classification({.num_classes = 10});
  EXPECT_THAT(test::error_text(Fault::config, [&] { ten->sums(four, classes, {}); }),
              testing::HasSubstr("the model outputs 4 classes as 'output', but target "
                                 "'target' has 10"));
  EXPECT_THAT(
      test::error_text(Fault::config,
                       [&] { make_classification({})->sums(four, shares, {}); }),
      testing::HasSubstr("target 'target' has 3"));
  const Named few{{"target", torch::tensor({0, 2}, torch::kInt64)}};
  EXPECT_NO_THROW(make_language_model({.vocabulary = 3})->sums(four, few, {}))
      << "a padded vocabulary";
  const auto ignores =
      make_classification({.loss = {.ignore_index = 9}, .num_classes = 10});
  EXPECT_NO_THROW(ignores->sums(four, classes, {})) << "that class does not count";
}

}  // namespace
}  // namespace lockstep::task
