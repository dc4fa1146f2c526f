// Targets that the task of a run can not learn from are found when they are read.
#include "lockstep/data/checked.h"

#include <cmath>

#include "lockstep/data/tensor_dataset.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

config::TaskConfig task_named(config::TaskName name) {
  config::TaskConfig task;
  task.name = name;
  return task;
}

// Samples with these targets, and a field beside them if it has a name.
std::shared_ptr<const Dataset> with_targets(const torch::Tensor& target,
                                            const config::TaskConfig& task,
                                            const std::string& name = "",
                                            const torch::Tensor& field = {}) {
  Named tensors{{"input", torch::zeros({target.size(0), 2})}, {"target", target}};
  if (!name.empty()) tensors.set(name, field);
  return checked(from_tensors(tensors), task);
}

void read_all(const Dataset& dataset) {
  Loader loader(dataset, {.batch = 2, .shuffle = false, .epochs = 1});
  while (loader.next() != nullptr) {
  }
}

std::string refused(Fault fault, const std::shared_ptr<const Dataset>& dataset) {
  return test::error_text(fault, [&] { read_all(*dataset); });
}

TEST(CheckedTargets, ANegativeClassIsRefusedUnlessItIsIgnored) {
  for (const auto dtype : {torch::kInt64, torch::kInt32}) {
    const auto target = torch::tensor({0, 2, -100, 1}).to(dtype);
    const auto text = refused(Fault::config, with_targets(target, {}));
    EXPECT_THAT(text, HasSubstr("sample 2 has the label -100"));
    EXPECT_THAT(text, HasSubstr("task.ignore_index=-100"));
    config::TaskConfig ignores;
    ignores.ignore_index = -100;
    EXPECT_NO_THROW(read_all(*with_targets(target, ignores)));
    const auto mask = torch::tensor({1, 1, 0, 1}).to(torch::kBool);
    EXPECT_NO_THROW(read_all(*with_targets(target, {}, "target_mask", mask)));
  }
}

// Ten classes, and one sample without any.
class OneMissing : public test::Pictures {
 public:
  OneMissing() : Pictures(4, {1, 1, 1}, [](auto, auto) { return 0; }) {}
  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    const auto label = Pictures::read(index, input);
    return index == 1 ? -100 : label;
  }
};

TEST(CheckedTargets, TheLoaderKnowsWhatTheTaskIgnores) {
  const auto data = std::make_shared<OneMissing>();
  EXPECT_THAT(test::error_text(Fault::io, [&] { read_all(*checked(data, {})); }),
              HasSubstr("sample 1: it has the label -100, the data set has the classes "
                        "0 to 9; if such targets are not to count, set "
                        "task.ignore_index=-100"));
  config::TaskConfig ignores;
  ignores.ignore_index = -100;
  EXPECT_NO_THROW(read_all(*checked(data, ignores)));
  EXPECT_EQ(checked(data, ignores)->class_of(3), 3);
}

TEST(CheckedTargets, WithNothingToLookAtItIsTheDataSetItself) {
  const auto data = std::make_shared<OneMissing>();
  EXPECT_TRUE(checked(data, {}) == data);
}

TEST(CheckedTargets, NumbersThatAreNotFiniteNeedAMask) {
  for (const float bad : {std::nanf(""), HUGE_VALF}) {
    const auto target = torch::tensor({{1.0F, 2.0F}, {bad, 0.5F}});
    const auto text = refused(Fault::io, with_targets(target, {}));
    EXPECT_THAT(text, HasSubstr("sample 1: its 'target' is "));
    EXPECT_THAT(text, HasSubstr("'target_mask'"));
    EXPECT_NO_THROW(
        read_all(*with_targets(target, {}, "target_mask", torch::tensor({1.0F, 0.0F}))))
        << "of a sample";
    const auto each = torch::tensor({{1, 1}, {0, 1}}).to(torch::kUInt8);
    EXPECT_NO_THROW(read_all(*with_targets(target, {}, "target_mask", each)));
    EXPECT_THAT(refused(Fault::io, with_targets(target, {}, "target_mask", 1 - each)),
                HasSubstr("sample 1"))
        << "another is masked out";
  }
}

TEST(CheckedTargets, LabelsAreZeroToOneUncertainOrMissing) {
  const auto labels = task_named(config::TaskName::multi_label);
  const auto good = torch::tensor({{0.0F, 1.0F, 0.25F}, {-1.0F, std::nanf(""), 1.0F}});
  EXPECT_NO_THROW(read_all(*with_targets(good, labels)));
  for (const float bad : {2.0F, -0.5F}) {
    auto target = good.clone();
    target[1][2] = bad;
    EXPECT_THAT(refused(Fault::io, with_targets(target, labels)),
                HasSubstr(str("sample 1: its 'target' has the label ", bad)));
    EXPECT_THAT(refused(Fault::io, with_targets(target.to(torch::kFloat64), labels)),
                HasSubstr("labels are 0 to 1, -1 where they are uncertain"));
  }
  const auto bytes = torch::tensor({{0, 1}, {1, 2}}).to(torch::kUInt8);
  EXPECT_THAT(refused(Fault::io, with_targets(bytes, labels)),
              HasSubstr("has the label 2"));
}

TEST(CheckedTargets, WeightsAreFiniteAndNotNegative) {
  const auto target = torch::tensor({1.0F, 2.0F, 3.0F});
  for (const float bad : {-1.0F, std::nanf("")}) {
    const auto weight = torch::tensor({0.0F, 2.0F, bad});
    EXPECT_THAT(refused(Fault::io, with_targets(target, {}, "target_weight", weight)),
                HasSubstr("sample 2: its 'target_weight' is "));
    EXPECT_THAT(refused(Fault::io, with_targets(torch::tensor({0, 1, 0}, torch::kInt64),
                                                {}, "target_weight", weight)),
                HasSubstr("weights are at least 0 and finite"));
  }
}

TEST(CheckedTargets, EachPartHasItsOwn) {
  config::TaskConfig task;
  task.parts["findings"] = config::PartKind::multi_label;
  const auto target = torch::tensor({std::nanf(""), 0.0F});
  const auto findings = torch::tensor({{1.0F, std::nanf("")}, {3.0F, 0.0F}});
  EXPECT_THAT(refused(Fault::io, with_targets(target, task, "findings", findings)),
              HasSubstr("sample 1: its 'findings' has the label 3"))
      << "nobody learns from 'target'";
}

}  // namespace
}  // namespace lockstep::data
