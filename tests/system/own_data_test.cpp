// A table as a person has it: looked at by config check, trained, evaluated.
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/system/command.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class OwnTable : public testing::Test {
 protected:
  void SetUp() override {
    write("train.csv", 240);
    write("val.csv", 60);
    test::write_file(recipe(),
                     "model: {name: mlp, hidden: 16, layers: 1}\n"
                     "data: {name: csv, dir: " +
                         folder_.path().string() +
                         "}\n"
                         "batch: {global: 32}\n"
                         "optim: {lr: 2e-2}\n"
                         "train: {epochs: 4}\n"
                         "parallel: {device: cpu}\n");
  }

  // A fruit has a length and a width by its kind, and a color that says nothing.
  void write(const std::string& name, int rows) const {
    const std::array<const char*, 3> kinds{"apple", "banana", "cherry"};
    std::ofstream out(folder_.path() / name);
    out << "length,width,color,label\n";
    for (int i = 0; i < rows; ++i) {
      const int kind = i % 3;
      const double wobble = (i * 37 % 11) / 20.0;
      out << (kind == 1 ? 18 : 6 - 2 * kind) + wobble << ','
          << (kind == 0 ? 7 : 3) - wobble << ',' << (i % 2 == 0 ? "red" : "yellow")
          << ',' << kinds.at(kind) << '\n';
    }
  }

  std::string recipe() const { return (folder_.path() / "fruit.yaml").string(); }

  files::TemporaryDirectory folder_;
};

TEST_F(OwnTable, IsLookedAtByConfigCheck) {
  const auto output = test::lockstep_command({"config", "check", recipe()});
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out,
              HasSubstr("data: csv, 240 samples to train on, 60 to evaluate on, 32 of "
                        "them read\n  input (4) float32\n  target () int64\n"
                        "  3 classes: apple, banana, cherry\n"));
  const auto json = test::lockstep_command({"config", "check", recipe(), "--json"});
  EXPECT_EQ(Json::parse(json.out).at("data").at("classes"), 3);
}

TEST_F(OwnTable, WhatIsWrongWithItIsSaidByConfigCheck) {
  std::ofstream(folder_.path() / "val.csv", std::ios::app) << "n/a,3,red,apple\n";
  const auto output = test::lockstep_command({"config", "check", recipe()});
  EXPECT_EQ(output.end.shell_status(), 3);
  EXPECT_THAT(output.err, HasSubstr("val.csv:62: 'length' is 'n/a', not a number"));
  const auto without =
      test::lockstep_command({"config", "check", recipe(), "--no-data"});
  EXPECT_EQ(without.end.shell_status(), 0) << without.err;
  const auto task =
      test::lockstep_command({"config", "check", recipe(), "data.dir=/nowhere"});
  EXPECT_EQ(task.end.shell_status(), 3);
}

TEST_F(OwnTable, IsTrainedOn) {
  const auto run = folder_.path() / "run";
  const auto output =
      test::lockstep_command({"train", recipe(), "--run-dir", run.string()});
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  const auto metrics = test::lockstep_command({"eval", run.string(), "--json"});
  ASSERT_EQ(metrics.end.shell_status(), 0) << metrics.err;
  EXPECT_GT(Json::parse(metrics.out).at("accuracy").get<double>(), 0.95);
  EXPECT_THAT(test::read_file(run / "classes.json"), HasSubstr("banana"));
}

// A number instead of a class: the models that ship predict one for each of the target.
TEST_F(OwnTable, ANumberIsRegressed) {
  const auto run = folder_.path() / "run";
  const auto output =
      test::lockstep_command({"train", recipe(), "--run-dir", run.string(),
                              "data.target=[width]", "train.epochs=24"});
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr("output   Linear                 17"));
  const auto metrics = test::lockstep_command({"eval", run.string(), "--json"});
  ASSERT_EQ(metrics.end.shell_status(), 0) << metrics.err;
  EXPECT_LT(Json::parse(metrics.out).at("loss").get<double>(), 1);
}

TEST(PlanWithoutData, PredictsFromTheShapeThatTheRecipeSays) {
  const auto plan = [](const std::vector<std::string>& knobs) {
    std::vector<std::string> words{
        "plan", (test::source_root() / "recipes/fashion_mnist_quick.yaml").string(),
        "parallel.device=cpu"};
    words.insert(words.end(), knobs.begin(), knobs.end());
    const auto output = test::lockstep_command(words);
    EXPECT_EQ(output.end.shell_status(), 0) << output.err;
    return output.out;
  };
  const auto here = plan({}), elsewhere = plan({"data.dir=/nowhere"});
  EXPECT_THAT(here, testing::Not(HasSubstr("the dataset is not here")));
  EXPECT_THAT(elsewhere,
              HasSubstr("the dataset is not here; predicted from the sample shape"));
  EXPECT_THAT(elsewhere, HasSubstr("/nowhere/train-images-idx3-ubyte.gz"));
  EXPECT_THAT(elsewhere, HasSubstr("predicted\n  memory"));
  EXPECT_THAT(plan({"data.name=image_folder", "data.dir=/nowhere"}),
              HasSubstr("no prediction"))
      << "of images that nobody knows the size of";
}

}  // namespace
}  // namespace lockstep
