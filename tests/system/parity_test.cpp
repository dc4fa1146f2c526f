// `lockstep parity` with real ranks, and with PyTorch: it passes, and it can fail.
#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"
#include "tests/support/oracle.h"
#include "tests/system/command.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kDiffers = 8;  // docs/run_directory.md

class Parity : public testing::Test {
 protected:
  // The second step is the rest of an epoch: 7 samples, which two and three ranks can
  // not share equally.
  process::Output parity(const std::vector<std::string>& more) const {
    std::vector<std::string> words{binary("lockstep").string(),
                                   "parity",
                                   test::quick_recipe(),
                                   "--steps",
                                   "3",
                                   "batch.global=24",
                                   "data.train_samples=31",
                                   "parallel.device=cpu"};
    words.insert(words.end(), more.begin(), more.end());
    return process::run({.arguments = words,
                         .environment = {{"TMPDIR", temporary_.path().string()}},
                         .directory = folder_.path(),
                         .out = process::StreamMode::pipe,
                         .err = process::StreamMode::pipe},
                        std::chrono::minutes(4));
  }

  static test::Path binary(const std::string& name) { return test::binary(name); }

  static nlohmann::json json_of(const process::Output& output) {
    EXPECT_TRUE(nlohmann::json::accept(output.out)) << output.out << output.err;
    return nlohmann::json::parse(output.out, nullptr, false);
  }

  // Not merely allowed: what rounding in float64 makes of it.
  static void expect_rounding_only(const nlohmann::json& json,
                                   std::size_t comparisons) {
    EXPECT_EQ(json["verdict"], "pass");
    ASSERT_EQ(json["comparisons"].size(), comparisons);
    for (const auto& one : json["comparisons"]) {
      EXPECT_EQ(one["ranks_differ"], "");
      // 1e-16 of rounding, grown by three updates of adamw at gradients near zero.
      EXPECT_LT(one["largest"].get<double>(), 1e-10) << one.dump(1);
      EXPECT_EQ(one["steps"].size(), 4U);
    }
  }

  files::TemporaryDirectory folder_, temporary_;
};

TEST_F(Parity, OfTwoAndThreeRanksWithOneHolds) {
  const auto output = parity({"--ranks", "1,2,3", "--json"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  expect_rounding_only(json_of(output), 2);
  EXPECT_THAT(test::names_in(temporary_.path()), testing::IsEmpty());
}

TEST_F(Parity, IsSaidInATableAndAVerdictWithItsReason) {
  const auto output = parity({"--ranks", "2,1", "--keep", "kept"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("1 rank against 2 ranks"));
  EXPECT_THAT(output.out, HasSubstr("PASS: 1 rank computes what 2 ranks do"));
  EXPECT_THAT(output.out, HasSubstr("Why 1e-8"));
  EXPECT_THAT(test::names_in(folder_.path() / "kept"),
              testing::ElementsAre("ranks_1", "ranks_2"));
}

TEST_F(Parity, OfRanksThatAreThreadsHolds) {
  const auto output =
      parity({"--ranks", "1,3", "--json", "parallel.strategy=data_parallel"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  expect_rounding_only(json_of(output), 1);
}

// One gradient of one rank by a thousandth: found at the first step, and nowhere else
// than where it was made.
TEST_F(Parity, AMistakeOfOneThousandthIsFound) {
  const auto output = parity(
      {"--ranks", "1,2,3", "--inject", "rank=2,scale=1.001,parameter=conv2.weight"});
  EXPECT_EQ(output.end.shell_status(), kDiffers) << output.err;
  EXPECT_THAT(output.out, HasSubstr("PASS: 2 ranks compute what 1 rank does"));
  EXPECT_THAT(
      output.out,
      HasSubstr("FAIL: 3 ranks do not compute what 1 rank does: the gradient of "
                "conv2.weight at step 1 differs by "));
  for (const std::string strategy : {"ddp", "data_parallel"}) {
    const auto json = json_of(parity(
        {"--inject", "rank=1,scale=1.001", "--json", "parallel.strategy=" + strategy}));
    EXPECT_EQ(json["verdict"], "fail") << strategy;
    const auto& first = json["comparisons"][0]["steps"][1]["gradient"];
    EXPECT_EQ(first["where"], "conv1.weight");
    // A rank of two has about half of the gradient.
    EXPECT_GT(first["relative"].get<double>(), 1e-4);
    EXPECT_LT(first["relative"].get<double>(), 3e-3);
  }
}

TEST_F(Parity, AMistakeInAParameterThatIsNotThereIsRefused) {
  const auto output = parity({"--inject", "rank=0,scale=2,parameter=conv9.weight"});
  EXPECT_EQ(output.end.shell_status(), 2) << output.err;
  EXPECT_THAT(output.err, HasSubstr("no trainable parameter 'conv9.weight'; it has "
                                    "conv1.weight"));
}

TEST_F(Parity, WithPytorchDdpHolds) {
  LOCKSTEP_NEEDS_ORACLE();
  const std::vector<std::vector<std::string>> recipes{
      {"model.name=cnn"},
      {"model.name=mlp", "model.layers=3", "optim.name=sgd", "optim.nesterov=true",
       "optim.lr=0.05", "schedule.name=cosine"},
      {"model.name=mlp", "optim.name=adam", "optim.clip_norm=0.1",
       "optim.no_decay=auto", "optim.weight_decay=0.1",
       "data.class_weights=[1,5,0.2,3,0.1,1,7,0.5,2,1]"},
      {"model.name=mlp", "optim.clip_value=0.0001", "optim.layer_decay=0.7",
       "optim.no_decay=*.bias", "augment.mixup=1"},
      {"model.name=mlp", "optim.name=lion", "optim.lr=1e-4", "optim.beta2=0.99"}};
  for (auto recipe : recipes) {
    recipe.insert(recipe.begin(), {"--ranks", "2,3", "--against", "pytorch", "--python",
                                   test::oracle_python(), "--json"});
    const auto output = parity(recipe);
    EXPECT_EQ(output.end.shell_status(), 0) << output.err;
    expect_rounding_only(json_of(output), 2);
  }
}

// A model that PyTorch has written is trained as PyTorch trains it, by ranks that are
// processes and by those that are threads.
TEST_F(Parity, ATorchScriptFileIsTrainedAsInPytorch) {
  LOCKSTEP_NEEDS_ORACLE();
  const files::TemporaryDirectory folder;
  const auto file = (folder.path() / "model.pt").string();
  test::expect_oracle_agrees("torchscript.py", {"plain", file});
  const auto holds = [&](const std::string& ranks, const std::string& strategy,
                         std::size_t comparisons) {
    const auto output =
        parity({"--ranks", ranks, "--against", "pytorch", "--python",
                test::oracle_python(), "--json", "model.name=torchscript",
                "model.file=" + file, "parallel.strategy=" + strategy});
    EXPECT_EQ(output.end.shell_status(), 0) << strategy << "\n" << output.err;
    expect_rounding_only(json_of(output), comparisons);
  };
  holds("1,2", "auto", 2);
  holds("3", "auto", 1);
  holds("1,2", "data_parallel", 2);
}

TEST_F(Parity, ALayerOfAScriptThatHasTwoNamesIsTrainedAsInPytorch) {
  LOCKSTEP_NEEDS_ORACLE();
  const files::TemporaryDirectory folder;
  const auto file = (folder.path() / "model.pt").string();
  test::expect_oracle_agrees("torchscript.py", {"shared", file});
  const auto output =
      parity({"--ranks", "2", "--against", "pytorch", "--python", test::oracle_python(),
              "--json", "model.name=torchscript", "model.file=" + file});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  expect_rounding_only(json_of(output), 1);
}

TEST_F(Parity, ALossThatPytorchsSideHasNotIsRefused) {
  LOCKSTEP_NEEDS_ORACLE();
  const auto output = parity({"--ranks", "2", "--against", "pytorch", "--python",
                              test::oracle_python(), "task.label_smoothing=0.1"});
  EXPECT_EQ(output.end.shell_status(), 2) << output.err;
  EXPECT_THAT(output.err, HasSubstr("task.label_smoothing is not computed there"));
}

// PyTorch is told nothing of the mistake, so it can not repeat it.
TEST_F(Parity, AMistakeOfOursIsFoundAgainstPytorch) {
  LOCKSTEP_NEEDS_ORACLE();
  const auto output =
      parity({"--ranks", "2", "--against", "pytorch", "--python", test::oracle_python(),
              "--inject", "rank=1,scale=1.001", "model.name=mlp"});
  EXPECT_EQ(output.end.shell_status(), kDiffers) << output.err;
  EXPECT_THAT(output.out,
              HasSubstr("FAIL: PyTorch DDP with 2 ranks does not compute what 2 ranks "
                        "do: the gradient of hidden1.weight at step 1"));
}

}  // namespace
}  // namespace lockstep
