#include "lockstep/inference/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using inference::predictions_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A task of which the name alone is asked for.
class NamedTask : public task::Task {
 public:
  explicit NamedTask(std::string name) : name_(std::move(name)) {}
  std::string_view name() const noexcept override { return name_; }
  const std::vector<task::LossSpec>& losses() const noexcept override {
    return losses_;
  }
  task::Sums sums(const Named&, const Named&, const task::Pass&) const override {
    return {};
  }

 private:
  std::string name_;
  std::vector<task::LossSpec> losses_;
};

TEST(Predictions, OfAClassifierAreTheLikeliestClassAndTheShareOfEach) {
  const auto scores = torch::tensor({{0.0, 0.0}, {std::log(3.0), 0.0}});
  const auto made = predictions_of(NamedTask("classification"), {{"output", scores}});
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[1].class_index, 0);
  EXPECT_NEAR(made[1].probabilities[0], 0.75, 1e-6);
  EXPECT_NEAR(made[1].probabilities[1], 0.25, 1e-6);
  EXPECT_TRUE(made[1].outputs.empty());
}

TEST(Predictions, OfSeveralLabelsAreTheShareOfEachAlone) {
  const auto scores = torch::tensor({{0.0, std::log(3.0)}});
  const auto made = predictions_of(NamedTask("multi_label"), {{"output", scores}});
  EXPECT_FALSE(made[0].class_index);
  EXPECT_NEAR(made[0].probabilities[0], 0.5, 1e-6);
  EXPECT_NEAR(made[0].probabilities[1], 0.75, 1e-6);
}

TEST(Predictions, OfAnyOtherTaskAreTheOutputsByName) {
  const auto made = predictions_of(NamedTask("regression"),
                                   {{"age", torch::tensor({{1.5}, {2.5}})},
                                    {"box", torch::tensor({{1, 2}, {3, 4}})}});
  ASSERT_EQ(made.size(), 2U);
  EXPECT_EQ(made[1].outputs[0].first, "age");
  EXPECT_THAT(made[1].outputs[0].second, ElementsAre(2.5));
  EXPECT_EQ(made[1].outputs[1].first, "box");
  EXPECT_THAT(made[1].outputs[1].second, ElementsAre(3, 4));
}

TEST(Predictions, OfALanguageModelAreRefusedWithWhatThereIs) {
  try {
    predictions_of(NamedTask("language_model"), {{"output", torch::zeros({1, 2, 3})}});
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::config);
    EXPECT_THAT(error.what(), HasSubstr("lockstep generate"));
  }
}

}  // namespace
}  // namespace lockstep
