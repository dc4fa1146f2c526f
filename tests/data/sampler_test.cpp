#include "lockstep/data/sampler.h"

#include <map>

#include "lockstep/data/open.h"
#include "lockstep/data/permutation.h"
#include "lockstep/data/tensor_dataset.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

// Class 0 has 90 samples of a hundred, class 1 nine, class 2 one, class 3 none.
class Lopsided : public test::Pictures {
 public:
  Lopsided()
      : Pictures(
            100, {1, 1, 1}, [](auto index, auto) { return int(index); }, 4) {}
  std::int64_t class_of(std::int64_t index) const override {
    return index < 90 ? 0 : index < 99 ? 1 : 2;
  }
};

TEST(Sampler, ShuffledIsThePermutation) {
  const Lopsided data;
  const Sampler sampler(data, {.seed = 3});
  const Permutation order(100, 3, 2);
  for (std::int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(sampler.at(2, i).index,
              static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i))));
    EXPECT_EQ(sampler.at(2, i).draw, sampler.at(2, i).index);
  }
}

TEST(Sampler, WeightedClassesComeEquallyOften) {
  const Lopsided data;
  const Sampler sampler(data, {.weighted = true, .seed = 3});
  std::map<std::int64_t, int> seen;  // samples of three epochs
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::map<std::int64_t, int> classes;
    for (std::int64_t i = 0; i < 100; ++i) {
      const auto index = sampler.at(epoch, i).index;
      classes[data.class_of(index)] += 1;
      seen[index] += 1;
    }
    ASSERT_EQ(classes.size(), 3u);  // an empty class has nothing to show
    for (const auto& [label, count] : classes) {
      EXPECT_TRUE(count == 33 || count == 34) << label << ": " << count;
    }
  }
  // The large class goes on where it stopped: 100 draws of 90 samples leave none out.
  EXPECT_EQ(seen.size(), 100u);
  for (std::int64_t i = 90; i < 99; ++i) EXPECT_GE(seen[i], 11);
}

TEST(Sampler, WeightedSamplingIsTheSameAtAnyNumberOfRanks) {
  const Lopsided data;
  const LoaderOptions options{.batch = 16, .seed = 5, .epochs = 2, .weighted = true};
  const auto alone = test::everything(data, options);
  EXPECT_TRUE(test::everything_over(data, options, 3).inputs.equal(alone.inputs));
  auto other = options;
  other.seed = 6;
  EXPECT_FALSE(test::everything(data, other).inputs.equal(alone.inputs));
}

// A sample that comes several times an epoch does not look the same each time.
TEST(Sampler, DrawsTellRepeatedVisitsApart) {
  const Lopsided data;
  const Sampler sampler(data, {.weighted = true});
  std::set<std::int64_t> draws;
  for (std::int64_t i = 0; i < 100; ++i) draws.insert(sampler.at(0, i).draw);
  EXPECT_EQ(draws.size(), 100u);
}

TEST(ClassWeights, BalancedOnesAverageToOneOverTheSamples) {
  const Lopsided data;
  const auto weights = class_weights({.balanced_loss = true}, data);
  ASSERT_EQ(weights.size(), 4u);
  EXPECT_DOUBLE_EQ(weights[0], 100.0 / (4 * 90));
  EXPECT_DOUBLE_EQ(weights[2], 25);
  EXPECT_DOUBLE_EQ(weights[3], 0);  // nobody asks
}

TEST(ClassWeights, GivenOnesMustBeAsManyAsThereAreClasses) {
  const Lopsided data;
  EXPECT_TRUE(class_weights({}, data).empty());
  EXPECT_EQ(class_weights({.class_weights = {1, 2, 3, 4}}, data)[3], 4);
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] {
                                 class_weights({.class_weights = {1, 2}}, data);
                               }),
              testing::HasSubstr("2 weights, but the data set has 4 classes"));
}

// Samples with several targets; the first is always 0.
Named dense_targets() {
  const auto target =
      torch::tensor({{0, 1, 1}, {0, 2, -1}, {0, 3, 1}, {0, -1, -1}}, torch::kInt64);
  return {{"input", torch::zeros({4, 2})}, {"target", target}};
}

// What Tensors do not say where labels are negative.
class Dense : public Dataset {
 public:
  explicit Dense(const Named& tensors)
      : inner_(from_tensors(tensors)), spec_(inner_->spec()) {
    spec_.num_classes = 4;
    spec_.ignore_index = -1;
  }
  std::int64_t size() const noexcept override { return inner_->size(); }
  const SampleSpec& spec() const noexcept override { return spec_; }
  void read_sample(const Visit& visit, const SampleBuffer& room) const override {
    inner_->read_sample(visit, room);
  }

 private:
  std::unique_ptr<Dataset> inner_;
  SampleSpec spec_;
};

TEST(ClassWeights, BalancedOnesCountEveryTargetThatIsNotIgnored) {
  const Dense data(dense_targets());
  EXPECT_THAT(class_counts(data), testing::ElementsAre(4, 3, 1, 1));
  EXPECT_THAT(class_weights({.balanced_loss = true}, data),
              testing::ElementsAre(9 / 16.0, 9 / 12.0, 9 / 4.0, 9 / 4.0));
  auto masked = dense_targets();
  masked.set("target_mask",
             torch::tensor({{1, 1, 0}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}}));
  EXPECT_THAT(class_counts(Dense(masked)), testing::ElementsAre(3, 2, 1, 1));
}

TEST(ClassWeights, ClassesMayBeWholeNumbersOfAnyType) {
  for (const auto dtype : {torch::kInt32, torch::kUInt8, torch::kBool}) {
    const auto data = from_tensors({{"input", torch::zeros({4, 2})},
                                    {"target", torch::tensor({0, 1, 1, 1}).to(dtype)}});
    EXPECT_THAT(class_weights({.balanced_loss = true}, *data),
                testing::ElementsAre(2, 2 / 3.0))
        << dtype;
    const Sampler sampler(*data, {.weighted = true});
    std::int64_t first = 0;
    for (std::int64_t i = 0; i < 4; ++i) first += sampler.at(0, i).index == 0 ? 1 : 0;
    EXPECT_EQ(first, 2) << dtype;
  }
}

TEST(ClassWeights, WhatIsForClassesIsRefusedWhereThereAreNone) {
  const auto labels =
      from_tensors({{"input", torch::zeros({4, 2})}, {"target", torch::zeros({4, 3})}});
  const auto bytes = from_tensors({{"input", torch::zeros({4, 2})},
                                   {"target", torch::zeros({4, 3}, torch::kUInt8)}});
  const config::DataConfig balanced{.balanced_loss = true},
      given{.class_weights = {1, 2, 3}};
  const auto text_of = [](const config::DataConfig& config, const Dataset& data) {
    return test::error_text(Fault::config, [&] { class_weights(config, data); });
  };
  EXPECT_THAT(text_of(balanced, *labels),
              testing::HasSubstr("data.balanced_loss: is for classes, but targets are "
                                 "Float of shape [3]"));
  EXPECT_THAT(text_of(given, *labels),
              testing::AllOf(testing::HasSubstr("data.class_weights: is for classes"),
                             testing::HasSubstr("task.positive_weights")));
  for (const auto& config : {balanced, given}) {
    EXPECT_THAT(text_of(config, *bytes),
                testing::HasSubstr("does not say how many there are"));
  }
}

TEST(Sampler, WeightedSamplingNeedsOneClassOfEachSample) {
  const auto text_of = [](const Dataset& data) {
    return test::error_text(Fault::config, [&] { Sampler(data, {.weighted = true}); });
  };
  EXPECT_THAT(text_of(Dense(dense_targets())),
              testing::HasSubstr("data.weighted_sampling: samples have targets of "
                                 "shape [3]"));
  EXPECT_THAT(text_of(*from_tensors(
                  {{"input", torch::zeros({4, 2})}, {"target", torch::zeros({4})}})),
              testing::HasSubstr("data.weighted_sampling: is for classes, but targets "
                                 "are Float"));
  EXPECT_THAT(text_of(Dense(Named{{"input", torch::zeros({2, 2})},
                                  {"target", torch::tensor({2, -1}, torch::kInt64)}})),
              testing::HasSubstr("sample 1 has no class: its label -1 is ignored"));
}

TEST(ClassCounts, ALabelOutOfRangeIsNamed) {
  class Wrong : public Lopsided {
    std::int64_t class_of(std::int64_t index) const override { return index; }
  };
  EXPECT_THAT(test::error_text(Fault::io, [] { class_counts(Wrong()); }),
              testing::HasSubstr("sample 4 has the label 4"));
}

}  // namespace
}  // namespace lockstep::data
