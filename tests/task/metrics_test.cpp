// Metrics over ranks are those of all targets at once.
#include <cmath>

#include "lockstep/base/text.h"
#include "lockstep/task/class_metrics.h"
#include "lockstep/task/label_metrics.h"
#include "lockstep/task/metric.h"
#include "lockstep/task/ranking.h"
#include "lockstep/task/regression_metrics.h"
#include "tests/comm/ranks.h"

namespace lockstep::task {
namespace {

using config::EvalMetric;
using torch::Tensor;

constexpr std::int64_t kClasses = 4;

Answers make_answers(std::int64_t count, std::int64_t classes = kClasses) {
  auto generator = at::detail::createCPUGenerator(3);
  // Few different scores, so that there are ties.
  const auto logits = torch::randint(0, 4, {count, classes}, generator);
  const auto targets = torch::randint(0, classes, {count}, generator);
  return {logits.to(torch::kFloat32), targets.to(torch::kInt64)};
}

// By the definition: the share of pairs in which the sample of the class wins.
double area_of_pairs(const Tensor& scores, const Tensor& of_class) {
  double won = 0, pairs = 0;
  for (std::int64_t i = 0; i < scores.numel(); ++i) {
    for (std::int64_t j = 0; j < scores.numel(); ++j) {
      if (!of_class[i].item<bool>() || of_class[j].item<bool>()) continue;
      const auto a = scores[i].item<double>(), b = scores[j].item<double>();
      won += a > b ? 1 : a == b ? 0.5 : 0;
      pairs += 1;
    }
  }
  return won / pairs;
}

// What rank `c` of unequal shares adds, in two passes; one of them may have none.
void add_share(Metric& metric, comm::Communicator& c, const Answers& all) {
  const auto n = all.targets.size(0);
  const auto rows = [](const Tensor& of, std::int64_t begin, std::int64_t end) {
    return of.defined() ? of.slice(0, begin, end) : of;
  };
  auto begin = n * c.rank() * c.rank() / (c.size() * c.size());
  const auto end = n * (c.rank() + 1) * (c.rank() + 1) / (c.size() * c.size());
  for (const auto next : {(begin + end) / 2, end}) {
    if (next > begin) {
      metric.add({rows(all.outputs, begin, next), rows(all.targets, begin, next),
                  rows(all.valid, begin, next), rows(all.bytes, begin, next)});
    }
    begin = next;
  }
}

std::vector<MetricValue> values_over(comm::Communicator& c, EvalMetric name,
                                     const Answers& all, std::int64_t classes) {
  const auto metrics = make_class_metrics({.metrics = {name}, .top_k = 2}, classes);
  add_share(*metrics[0], c, all);
  return metrics[0]->values(c);
}

TEST(Metrics, OverRanksAreThoseOfAllSamples) {
  test::with_communicators(test::Rig::local, 3, [](comm::Communicator& c) {
    const auto all = make_answers(61);
    const auto of = [&](EvalMetric name) {
      return values_over(c, name, all, kClasses);
    };
    const auto answers = all.outputs.argmax(1);

    const auto likely = std::get<1>(all.outputs.topk(2, 1));
    const auto right = likely.eq(all.targets.unsqueeze(1)).any(1);
    const auto top = of(EvalMetric::top_k);
    EXPECT_EQ(top[0].name, "accuracy_top_2");
    EXPECT_DOUBLE_EQ(top[0].value, right.to(torch::kFloat64).mean().item<double>());

    const auto per_class = of(EvalMetric::per_class);
    ASSERT_EQ(per_class.size(), 4U);
    double f1 = 0, area = 0;
    const auto scores = all.outputs.softmax(1);
    for (std::int64_t k = 0; k < kClasses; ++k) {
      const auto mine = all.targets.eq(k), said = answers.eq(k);
      const auto hits = (mine & said).sum().item<double>();
      const auto recall = hits / mine.sum().item<double>();
      const auto precision = hits / said.sum().item<double>();
      const auto index = static_cast<std::size_t>(k);
      EXPECT_EQ(per_class[index].name, str("accuracy_class_", k));
      EXPECT_DOUBLE_EQ(per_class[index].value, recall);
      f1 += 2 * precision * recall / (precision + recall) / kClasses;
      area += area_of_pairs(scores.select(1, k), mine) / kClasses;
    }
    EXPECT_NEAR(of(EvalMetric::f1)[0].value, f1, 1e-12);
    EXPECT_NEAR(of(EvalMetric::auroc)[0].value, area, 1e-12);

    const auto loss = torch::cross_entropy_loss(all.outputs, all.targets);
    const auto perplexity = of(EvalMetric::perplexity)[0];
    EXPECT_NEAR(perplexity.value, std::exp(loss.item<double>()),
                1e-4);  // of a sum in float32
    EXPECT_EQ(perplexity.better, Better::less);
    EXPECT_FALSE(perplexity.is_share);
  });
}

// The order of eval.metrics is that of the values; scores are kept once for all that
// rank them.
TEST(Metrics, ValuesComeInTheOrderInWhichTheyAreAskedFor) {
  const auto list = make_class_metrics(
      {.metrics = {EvalMetric::top_k, EvalMetric::auroc, EvalMetric::perplexity,
                   EvalMetric::average_precision}},
      kClasses);
  ASSERT_EQ(list.size(), 3U);
  std::vector<std::string> names;
  test::with_communicators(test::Rig::local, 1, [&](comm::Communicator& c) {
    for (const auto& metric : list) {
      for (const auto& value : metric->values(c)) names.push_back(value.name);
    }
  });
  EXPECT_THAT(names, testing::ElementsAre("accuracy_top_4", "auroc",
                                          "average_precision", "perplexity"));
}

TEST(Metrics, OfTwoClassesAurocIsThatOfTheSecond) {
  test::with_communicators(test::Rig::local, 1, [](comm::Communicator& c) {
    const auto all = make_answers(40, 2);
    EXPECT_NEAR(values_over(c, EvalMetric::auroc, all, 2)[0].value,
                area_of_pairs(all.outputs.softmax(1).select(1, 1), all.targets.eq(1)),
                1e-12);
  });
}

TEST(Metrics, AnAnswerThatIsNotANumberHasNoRank) {
  test::with_communicators(test::Rig::local, 1, [](comm::Communicator& c) {
    auto all = make_answers(10);
    all.outputs[3][1] = std::nan("");
    EXPECT_TRUE(std::isnan(values_over(c, EvalMetric::auroc, all, kClasses)[0].value));
    all.valid = torch::arange(10).ne(3);
    EXPECT_FALSE(std::isnan(values_over(c, EvalMetric::auroc, all, kClasses)[0].value))
        << "it does not count";
  });
}

const std::vector<EvalMetric> kOfClasses{EvalMetric::top_k,
                                         EvalMetric::per_class,
                                         EvalMetric::f1,
                                         EvalMetric::f1_micro,
                                         EvalMetric::f1_per_label,
                                         EvalMetric::confusion,
                                         EvalMetric::auroc,
                                         EvalMetric::auroc_micro,
                                         EvalMetric::auroc_per_label,
                                         EvalMetric::average_precision};

// A 0 could be the best loss, and the worst accuracy.
TEST(Metrics, WithoutSamplesThereIsNothingToMeasure) {
  test::with_communicators(test::Rig::local, 2, [](comm::Communicator& c) {
    MetricList all = make_class_metrics({.metrics = kOfClasses}, 3);
    for (auto& one : make_label_metrics({EvalMetric::f1, EvalMetric::auroc}, 2)) {
      all.push_back(std::move(one));
    }
    for (auto& one : make_regression_metrics(
             {EvalMetric::mae, EvalMetric::rmse, EvalMetric::r2}, 2)) {
      all.push_back(std::move(one));
    }
    all.push_back(make_bits_per_byte());
    for (const auto& metric : all) {
      for (const auto& value : metric->values(c)) {
        if (text::starts_with(value.name, "confusion")) {
          EXPECT_EQ(value.value, 0) << value.name;
        } else {
          EXPECT_TRUE(std::isnan(value.value)) << value.name << " " << value.value;
        }
      }
    }
  });
}

TEST(Metrics, ALabelWhoseTargetsAreAllAlikeHasNoAreaAndNoPartInTheMean) {
  test::with_communicators(test::Rig::local, 2, [](comm::Communicator& c) {
    // Label 1 is never there, label 2 always.
    const Answers all{torch::tensor({{2.0F, 1.0F, 0.5F}, {1.0F, 3.0F, 0.1F}}),
                      torch::tensor({{1.0F, 0.0F, 1.0F}, {0.0F, 0.0F, 1.0F}})};
    const std::vector<EvalMetric> wanted{EvalMetric::auroc, EvalMetric::auroc_per_label,
                                         EvalMetric::average_precision,
                                         EvalMetric::average_precision_per_label};
    const auto metric = make_ranking({.wanted = wanted, .num_columns = 3});
    if (c.rank() == 0) metric->add(all);
    const auto values = metric->values(c);
    ASSERT_EQ(values.size(), 8U);
    EXPECT_EQ(values[0].value, 1) << "of label 0 alone";
    EXPECT_EQ(values[1].value, 1);
    EXPECT_TRUE(std::isnan(values[2].value)) << values[2].name;
    EXPECT_TRUE(std::isnan(values[3].value)) << values[3].name;
    EXPECT_EQ(values[4].value, 1) << "of labels 0 and 2";
    EXPECT_TRUE(std::isnan(values[6].value)) << "never there";
    EXPECT_EQ(values[7].value, 1) << "always there";
  });
}

double r2_over(comm::Communicator& c, const Tensor& outputs, const Tensor& targets) {
  const auto list = make_regression_metrics({EvalMetric::r2}, 1);
  add_share(*list[0], c, {outputs, targets});
  return list[0]->values(c)[0].value;
}

// Sums of squares leave something of it: 3.7e-14 of a thousand times 0.1.
TEST(Metrics, R2OfAConstantTargetIsOneOrZero) {
  test::with_communicators(test::Rig::local, 3, [](comm::Communicator& c) {
    const auto target = torch::full({1000, 1}, 0.1F);
    EXPECT_EQ(r2_over(c, target, target), 1);
    EXPECT_EQ(r2_over(c, target + 0.5F, target), 0);
  });
}

TEST(Metrics, R2OfASmallSpreadAboutALargeMeanIsThatOfTheSpread) {
  test::with_communicators(test::Rig::local, 3, [](comm::Communicator& c) {
    auto generator = at::detail::createCPUGenerator(5);
    const auto options = torch::dtype(torch::kFloat64);
    const auto spread = torch::randn({1000, 1}, generator, options);
    const auto error = 0.5 * torch::randn({1000, 1}, generator, options);
    const auto expected =
        1 - error.square().sum() / (spread - spread.mean()).square().sum();
    EXPECT_NEAR(r2_over(c, 1e6 + spread + error, 1e6 + spread), expected.item<double>(),
                1e-7);
  });
}

// A class that neither occurs nor is answered.
TEST(Metrics, AnUnseenClassHasNoValueAndNoPartInTheMean) {
  test::with_communicators(test::Rig::local, 1, [](comm::Communicator& c) {
    const Answers all{torch::tensor({{2.0F, 1.0F, 0.0F}, {1.0F, 2.0F, 0.0F}}),
                      torch::tensor({0, 1}, torch::kInt64)};
    EXPECT_EQ(values_over(c, EvalMetric::f1, all, 3)[0].value, 1);
    const auto each = values_over(c, EvalMetric::f1_per_label, all, 3);
    EXPECT_EQ(each[1].value, 1);
    EXPECT_TRUE(std::isnan(each[2].value));
    EXPECT_TRUE(std::isnan(values_over(c, EvalMetric::per_class, all, 3)[2].value));
  });
}

TEST(Metrics, WhatDoesNotCountIsAsIfItWereNotThere) {
  test::with_communicators(test::Rig::local, 1, [](comm::Communicator& c) {
    auto all = make_answers(40);
    const Answers kept{all.outputs.slice(0, 0, 25), all.targets.slice(0, 0, 25)};
    all.valid = torch::arange(40).lt(25);
    for (const auto name : kOfClasses) {
      const auto masked = values_over(c, name, all, kClasses);
      const auto fewer = values_over(c, name, kept, kClasses);
      ASSERT_EQ(masked.size(), fewer.size());
      for (std::size_t i = 0; i < masked.size(); ++i) {
        EXPECT_DOUBLE_EQ(masked[i].value, fewer[i].value) << masked[i].name;
      }
    }
  });
}

TEST(Metrics, TooManyClassesForAValueOfEachAreRefused) {
  const auto refused = [](EvalMetric name, std::int64_t classes) {
    return test::error_text(Fault::config,
                            [&] { make_class_metrics({.metrics = {name}}, classes); });
  };
  EXPECT_THAT(refused(EvalMetric::per_class, 50'000),
              testing::HasSubstr("per_class has a value for each of 50000 classes"));
  EXPECT_THAT(refused(EvalMetric::confusion, 21),
              testing::HasSubstr("confusion is 21 x 21 = 441 values"));
  EXPECT_THAT(refused(EvalMetric::f1, 0),
              testing::HasSubstr("f1 has to know the number of classes"));
  EXPECT_NO_THROW(make_class_metrics({.metrics = {EvalMetric::f1}}, 50'000));
}

// Else an answer would be counted in the place of another, or beyond all of them.
TEST(Metrics, ScoresOfAnotherNumberOfClassesAreRefused) {
  const auto refusal = [](Metric& metric, const Answers& answers) {
    return test::error_text(Fault::config, [&] { metric.add(answers); });
  };
  for (const std::int64_t width : {kClasses - 1, kClasses + 2}) {
    for (const auto name : kOfClasses) {
      if (name == EvalMetric::top_k) continue;
      const auto metrics = make_class_metrics({.metrics = {name}}, kClasses);
      EXPECT_THAT(refusal(*metrics[0], make_answers(12, width)),
                  testing::HasSubstr(str("eval.metrics: the model outputs ", width,
                                         " classes, but the task has 4")));
    }
    const Answers labels{torch::zeros({5, width}), torch::zeros({5, width})};
    const auto all = make_label_metrics({EvalMetric::f1, EvalMetric::auroc}, kClasses);
    for (const std::size_t i : {1U, 2U}) {  // after the accuracy
      EXPECT_THAT(refusal(*all[i], labels),
                  testing::HasSubstr(str("outputs ", width, " labels")));
    }
  }
  const auto top = make_class_metrics({.metrics = {EvalMetric::top_k}}, kClasses);
  EXPECT_THAT(refusal(*top[0], make_answers(12, 3)),
              testing::HasSubstr("outputs 3 classes, but the task has 4"));
  EXPECT_NO_THROW(top[0]->add(make_answers(12, 6))) << "a padded vocabulary";
}

// Every rank refuses, and says how much it would have been; none keeps more than the
// bound.
TEST(Metrics, MoreScoresThanFitAreRefusedWithTheArithmetic) {
  test::with_communicators(test::Rig::local, 2, [](comm::Communicator& c) {
    const auto metric = make_ranking({.wanted = {EvalMetric::auroc},
                                      .num_columns = kClasses,
                                      .of_classes = true,
                                      .most_scores = 100});
    add_share(*metric, c, make_answers(50));
    EXPECT_THAT(test::error_text(Fault::config, [&] { metric->values(c); }),
                testing::HasSubstr("auroc keeps every score: 50 targets x 4 = 200, but "
                                   "100 are the most"));
  });
}

TEST(Metrics, ConfusionCountsEveryPair) {
  test::with_communicators(test::Rig::local, 2, [](comm::Communicator& c) {
    const auto all = make_answers(30);
    const auto said = all.outputs.argmax(1);
    const auto values = values_over(c, EvalMetric::confusion, all, kClasses);
    ASSERT_EQ(values.size(), 16U);
    for (std::int64_t i = 0; i < kClasses; ++i) {
      for (std::int64_t j = 0; j < kClasses; ++j) {
        const auto& cell = values[static_cast<std::size_t>(i * kClasses + j)];
        EXPECT_EQ(cell.name, str("confusion_", i, "_", j));
        const auto both = all.targets.eq(i) & said.eq(j);
        EXPECT_EQ(cell.value, both.sum().item<double>());
        EXPECT_EQ(cell.better, i == j ? Better::more : Better::less);
      }
    }
  });
}

// A user's own.
class Confidence : public SumMetric {
 protected:
  Tensor sums_of(const Answers& answers) const override {
    const auto best = answers.outputs.softmax(1).amax(1).sum();
    return torch::stack({best, torch::full_like(best, answers.targets.numel())});
  }
  std::int64_t num_sums() const override { return 2; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    return {{"confidence", sums[0].item<double>() / sums[1].item<double>()}};
  }
};

TEST(Metrics, OneOfYourOwnIsAClassOfThreeFunctions) {
  test::with_communicators(test::Rig::local, 2, [](comm::Communicator& c) {
    const auto all = make_answers(10);
    Confidence own;
    add_share(own, c, all);
    EXPECT_NEAR(own.values(c)[0].value,
                all.outputs.softmax(1).amax(1).mean().item<double>(), 1e-6);
  });
}

}  // namespace
}  // namespace lockstep::task
