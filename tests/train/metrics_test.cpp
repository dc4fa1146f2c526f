// Metrics over ranks are those of all samples at once.
#include "lockstep/train/metrics.h"

#include "tests/comm/ranks.h"

namespace lockstep::train {
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

std::vector<MetricValue> values_over(comm::Communicator& c, EvalMetric name,
                                     const Answers& all, std::int64_t classes) {
  const auto metrics = make_metrics({.metrics = {name}, .top_k = 2}, classes);
  // Unequal shares, in two passes; the last rank may have none.
  const auto n = all.targets.numel();
  auto begin = n * c.rank() * c.rank() / (c.size() * c.size());
  const auto end = n * (c.rank() + 1) * (c.rank() + 1) / (c.size() * c.size());
  for (const auto next : {(begin + end) / 2, end}) {
    if (next > begin) {
      metrics[0]->add(
          {all.logits.slice(0, begin, next), all.targets.slice(0, begin, next)});
    }
    begin = next;
  }
  return metrics[0]->values(c);
}

TEST(Metrics, OverRanksAreThoseOfAllSamples) {
  test::with_communicators(test::Rig::local, 3, [](comm::Communicator& c) {
    const auto all = make_answers(61);
    const auto of = [&](EvalMetric name) {
      return values_over(c, name, all, kClasses);
    };
    const auto answers = all.logits.argmax(1);

    const auto likely = std::get<1>(all.logits.topk(2, 1));
    const auto right = likely.eq(all.targets.unsqueeze(1)).any(1);
    const auto top = of(EvalMetric::top_k);
    EXPECT_EQ(top[0].name, "accuracy_top_2");
    EXPECT_DOUBLE_EQ(top[0].value, right.to(torch::kFloat64).mean().item<double>());

    const auto per_class = of(EvalMetric::per_class);
    ASSERT_EQ(per_class.size(), 4U);
    double f1 = 0, area = 0;
    const auto scores = all.logits.softmax(1);
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

    const auto loss = torch::cross_entropy_loss(all.logits, all.targets);
    EXPECT_NEAR(of(EvalMetric::perplexity)[0].value, std::exp(loss.item<double>()),
                1e-4);  // of a sum in float32
  });
}

TEST(Metrics, OfTwoClassesAurocIsThatOfTheSecond) {
  test::with_communicators(test::Rig::local, 1, [](comm::Communicator& c) {
    const auto all = make_answers(40, 2);
    EXPECT_NEAR(values_over(c, EvalMetric::auroc, all, 2)[0].value,
                area_of_pairs(all.logits.softmax(1).select(1, 1), all.targets.eq(1)),
                1e-12);
  });
}

TEST(Metrics, AnAnswerThatIsNotANumberHasNoRank) {
  test::with_communicators(test::Rig::local, 1, [](comm::Communicator& c) {
    auto all = make_answers(10);
    all.logits[3][1] = std::nan("");
    EXPECT_TRUE(std::isnan(values_over(c, EvalMetric::auroc, all, kClasses)[0].value));
  });
}

TEST(Metrics, WithoutSamplesNothingIsDividedByZero) {
  test::with_communicators(test::Rig::local, 2, [](comm::Communicator& c) {
    const config::EvalConfig config{.metrics = {EvalMetric::top_k, EvalMetric::f1,
                                                EvalMetric::auroc,
                                                EvalMetric::per_class}};
    for (const auto& metric : make_metrics(config, 3)) {
      for (const auto& [name, value] : metric->values(c)) EXPECT_EQ(value, 0) << name;
    }
  });
}

TEST(Metrics, TooManyClassesForATableAreRefused) {
  EXPECT_THAT(
      test::error_text(Fault::config,
                       [] { make_metrics({.metrics = {EvalMetric::f1}}, 50'000); }),
      testing::HasSubstr("50000 classes"));
}

// A user's own.
class Confidence : public SumMetric {
 protected:
  Tensor sums_of(const Answers& answers) const override {
    const auto best = answers.logits.softmax(1).amax(1).sum();
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
    own.add({all.logits.slice(0, c.rank() * 5, c.rank() * 5 + 5),
             all.targets.slice(0, c.rank() * 5, c.rank() * 5 + 5)});
    EXPECT_NEAR(own.values(c)[0].value,
                all.logits.softmax(1).amax(1).mean().item<double>(), 1e-6);
  });
}

}  // namespace
}  // namespace lockstep::train
