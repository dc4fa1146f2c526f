// lockstep eval and predict, against what the run itself has measured.
#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>
#include <zlib.h>

#include "tests/support/oracle.h"
#include "tests/system/command.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

// One short run for all tests of this file.
class TrainedRun : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<files::TemporaryDirectory>();
    const auto output = test::lockstep_command(
        {"train", test::quick_recipe(), "--run-dir", run().string(),
         "parallel.device=cpu", "checkpoint.save_best=true", "eval.every=12",
         "data.eval_samples=200"});
    ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::filesystem::path run() { return folder_->path() / "run"; }
  static monitor::Metrics last_evaluation() {
    monitor::Metrics last;
    for (const auto& line : monitor::read_metrics(run() / "metrics.jsonl")) {
      if (line.split == monitor::Split::eval) last = line;
    }
    return last;
  }
  static std::vector<Json> lines_of(const std::string& text) {
    std::vector<Json> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  static std::unique_ptr<files::TemporaryDirectory> folder_;
};
std::unique_ptr<files::TemporaryDirectory> TrainedRun::folder_;

TEST_F(TrainedRun, IsEvaluatedToTheNumbersOfItsOwnLastEvaluation) {
  const auto output = test::lockstep_command({"eval", run().string(), "--json"});
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  const auto metrics = Json::parse(output.out);
  EXPECT_EQ(metrics["samples"], 200);
  EXPECT_EQ(metrics["loss"].get<double>(), last_evaluation().loss);
  EXPECT_EQ(metrics["accuracy"].get<double>(), last_evaluation().find("accuracy"));
}

TEST_F(TrainedRun, IsEvaluatedOnOtherDataWithOtherMetrics) {
  const auto output = test::lockstep_command(
      {"eval", run().string(), "data.eval_samples=50", "eval.metrics=[confusion]"});
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("samples"));
  EXPECT_THAT(output.out, HasSubstr("true \\ predicted"));
  EXPECT_THAT(output.out, HasSubstr("Ankle boot"));
}

TEST_F(TrainedRun, PredictsWhatItsAccuracySays) {
  const auto output = test::lockstep_command({"predict", run().string()});
  ASSERT_EQ(output.end.shell_status(), 0) << output.err;
  const auto lines = lines_of(output.out);
  ASSERT_EQ(lines.size(), 200U);

  // The labels of the data set, read without our reader.
  const auto* const path =
      "/usr/share/datasets/fashion-mnist/t10k-labels-idx1-ubyte.gz";
  auto* const file = ::gzopen(path, "rb");
  ASSERT_NE(file, nullptr);
  std::vector<unsigned char> bytes(8 + 200);
  ASSERT_EQ(::gzread(file, bytes.data(), 208), 208);
  ::gzclose(file);
  const std::vector<std::string> names{
      "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
      "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};
  int right = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["index"], i);
    right += lines[i]["class"] == names[bytes[8 + i]] ? 1 : 0;
    double sum = 0;
    for (const double share : lines[i]["probabilities"]) sum += share;
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  EXPECT_NEAR(right / 200.0, last_evaluation().find("accuracy").value(), 1e-9);
}

TEST_F(TrainedRun, HasABestAndAFinalModelAndNoAverage) {
  EXPECT_EQ(test::lockstep_command({"eval", run().string(), "--weights", "best"})
                .end.shell_status(),
            0);
  const auto none =
      test::lockstep_command({"eval", run().string(), "--weights", "ema"});
  EXPECT_EQ(none.end.shell_status(), 2);
  EXPECT_THAT(none.err, HasSubstr("ema.enabled"));
  const auto wrong =
      test::lockstep_command({"eval", run().string(), "--weights", "bets"});
  EXPECT_EQ(wrong.end.shell_status(), 2);
  EXPECT_THAT(wrong.err, HasSubstr("'bets' is not a file"));
}

TEST_F(TrainedRun, IsAProgramThatPyTorchPredictsTheSameWith) {
  LOCKSTEP_NEEDS_ORACLE();
  const auto program = folder_->path() / "model.ts";
  const auto wrote =
      test::lockstep_command({"checkpoint", "export", run().string(), "--to",
                              program.string(), "--format", "torchscript"});
  ASSERT_EQ(wrote.end.shell_status(), 0) << wrote.err;
  EXPECT_THAT(wrote.out, HasSubstr("inputs: input (batch, 1, 28, 28) float32; outputs: "
                                   "output (batch, 10) float32"));
  const auto predictions = folder_->path() / "predictions.jsonl";
  test::write_file(predictions,
                   test::lockstep_command({"predict", run().string()}).out);
  test::expect_oracle_agrees(
      "torchscript_program.py",
      {program.string(), "/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz",
       predictions.string()});
}

TEST_F(TrainedRun, IsNoProgramInAFolderThatIsMissing) {
  const auto output =
      test::lockstep_command({"checkpoint", "export", run().string(), "--to",
                              "/no/such/model.ts", "--format", "torchscript"});
  EXPECT_EQ(output.end.shell_status(), 3);
  EXPECT_THAT(output.err, HasSubstr("'/no/such' is not a directory"));
}

TEST_F(TrainedRun, RefusesFilesThatAreNoImages) {
  const auto file = folder_->path() / "cat.jpg";
  test::write_file(file, "no image");
  const auto damaged =
      test::lockstep_command({"predict", run().string(), file.string()});
  EXPECT_NE(damaged.end.shell_status(), 0);
  EXPECT_THAT(damaged.err, HasSubstr("cat.jpg"));
  const auto missing = test::lockstep_command(
      {"predict", run().string(), (folder_->path() / "dog.png").string()});
  EXPECT_EQ(missing.end.shell_status(), 2);
  EXPECT_THAT(missing.err, HasSubstr("there is no file"));
}

}  // namespace
}  // namespace lockstep
