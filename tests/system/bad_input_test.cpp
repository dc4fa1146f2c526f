// Every kind of bad input through the real command: one clear message, exit 2 or 3,
// nothing left behind. The details are tested with the modules.
#include <sys/resource.h>

#include "tests/system/command.h"

namespace lockstep {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

class BadInput : public testing::Test {
 protected:
  // Trains with the arguments, which must be refused, and returns what was said.
  std::string refused(const std::string& recipe, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"train", recipe, "--run-dir",
                                       (folder_.path() / "runs" / "r").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto output = test::lockstep_command(arguments);
    EXPECT_THAT(output.end.shell_status(), AnyOf(2, 3)) << output.err;
    EXPECT_EQ(output.out, "");
    EXPECT_EQ(test::count_of(output.err, "error: "), 1) << output.err;  // said once
    EXPECT_THAT(output.err, HasSubstr("lockstep: error: "));
    EXPECT_THAT(output.err,
                Not(AnyOf(HasSubstr("terminate called"), HasSubstr("what():"),
                          HasSubstr("Exception raised from"))));
    return output.err;
  }
  std::string recipe(const std::string& content) {
    const auto path = folder_.path() / "recipe.yaml";
    test::write_file(path, content);
    return path.string();
  }
  bool left_nothing() { return !std::filesystem::exists(folder_.path() / "runs"); }

  files::TemporaryDirectory folder_;
};

TEST_F(BadInput, UnknownKeyNamesFileLineAndSuggestion) {
  const auto message = refused(recipe("optim:\n  lr: 1e-3\n  weight_decya: 0.1\n"));
  EXPECT_THAT(message, HasSubstr("recipe.yaml:3:3"));
  EXPECT_THAT(message, HasSubstr("weight_decay"));
  EXPECT_TRUE(left_nothing());
}

TEST_F(BadInput, WrongTypeRangeAndContradiction) {
  EXPECT_THAT(refused(recipe("optim: {lr: fast}\n")), HasSubstr("optim.lr"));
  EXPECT_THAT(refused(recipe("optim: {lr: -1}\n")), HasSubstr("optim.lr"));
  EXPECT_THAT(refused(recipe("train: {steps: 5, epochs: 2}\n")),
              HasSubstr("train.epochs"));
  EXPECT_THAT(refused(recipe("batch: {global: 100, per_rank: 30}\n")), HasSubstr("30"));
  EXPECT_TRUE(left_nothing());
}

TEST_F(BadInput, RecipesThatAreNoRecipes) {
  EXPECT_THAT(refused((folder_.path() / "none.yaml").string()), HasSubstr("none.yaml"));
  EXPECT_THAT(refused(folder_.path().string()), HasSubstr("directory"));
  refused(recipe(""));
  EXPECT_THAT(refused(recipe("run: {name: \xFF\xFE}\n")), HasSubstr("UTF-8"));
  refused(recipe("a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"));
  refused(recipe(std::string(5000, '[')));
  EXPECT_TRUE(left_nothing());
}

TEST_F(BadInput, AHundredMegabytesOfGarbage) {
  const auto path = folder_.path() / "large.yaml";
  test::write_file(path, std::string(100 << 20, 'x'));
  EXPECT_THAT(refused(path.string()), HasSubstr("100.0 MiB"));
}

TEST_F(BadInput, WhatThisVersionLacksIsRefused) {
  EXPECT_THAT(refused(test::quick_recipe(), {"parallel.strategy=zero"}),
              HasSubstr("parallel.strategy"));
  EXPECT_THAT(refused(test::quick_recipe(), {"--resume", "runs/0001"}),
              HasSubstr("resume"));
  EXPECT_TRUE(left_nothing());
}

TEST_F(BadInput, AMissingDataSetNamesThePackage) {
  EXPECT_THAT(refused(test::quick_recipe(), {"data.dir=/nowhere"}),
              HasSubstr("dataset-fashion-mnist"));
}

TEST_F(BadInput, ADamagedDataSetNamesTheFile) {
  const auto data = folder_.path() / "data";
  for (const auto* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    test::write_file(data / name, "not an IDX file");
  }
  EXPECT_THAT(refused(test::quick_recipe(), {"data.dir=" + data.string()}),
              HasSubstr("train-images-idx3-ubyte"));
}

TEST_F(BadInput, AModelThatDoesNotFitIntoMemoryNamesTheKnobs) {
  const int status = test::in_child([&] {
    constexpr rlim_t kEightGib = rlim_t{8} << 30;
    const rlimit limit{kEightGib, kEightGib};
    ::setrlimit(RLIMIT_AS, &limit);
    const auto output = test::lockstep_command(
        {"train", test::quick_recipe(), "--run-dir", (folder_.path() / "r").string(),
         "model.name=mlp", "model.hidden=65536", "model.layers=1000"});
    std::fputs(output.err.c_str(), stderr);
    const bool named = output.err.find("out of memory") != std::string::npos &&
                       output.err.find("batch.micro") != std::string::npos;
    return named ? output.end.shell_status() : 99;
  });
  EXPECT_EQ(status, 3);
}

TEST_F(BadInput, AnUnwritablePlaceForTheRun) {
  const auto output = test::lockstep_command(
      {"train", test::quick_recipe(), "--run-dir", "/proc/nowhere/run"});
  EXPECT_EQ(output.end.shell_status(), 3);
  EXPECT_THAT(output.err, HasSubstr("/proc/nowhere"));
}

TEST_F(BadInput, AFullDiskLeavesNothingHalfWritten) {
  const auto runs = folder_.path() / "runs";
  const int status = test::in_child([&] {
    test::limit_file_size(64);
    const auto output = test::lockstep_command(
        {"train", test::quick_recipe(), "--run-dir", (runs / "r").string()});
    return output.end.shell_status();
  });
  EXPECT_EQ(status, 3);
  EXPECT_TRUE(!std::filesystem::exists(runs) || test::names_in(runs).empty());
}

TEST_F(BadInput, ADiskThatFillsUpDuringTheRunIsNamed) {
  const int status = test::in_child([&] {
    test::limit_file_size(20'000);  // enough to start, too little for the weights
    const auto output = test::lockstep_command(
        {"train", test::quick_recipe(), "--run-dir", (folder_.path() / "r").string()});
    return output.err.find("model.safetensors") != std::string::npos
               ? output.end.shell_status()
               : 99;
  });
  EXPECT_EQ(status, 3);
  EXPECT_EQ(monitor::RunDirectory::open(folder_.path() / "r").read_record().state,
            monitor::RunState::failed);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "r" / "model.safetensors"));
}

TEST_F(BadInput, UnknownCommandsAndFlagsGetASuggestion) {
  auto output = test::lockstep_command({"trian", test::quick_recipe()});
  EXPECT_EQ(output.end.shell_status(), 2);
  EXPECT_THAT(output.err, HasSubstr("train"));
  output = test::lockstep_command({"train", test::quick_recipe(), "--rank", "1"});
  EXPECT_EQ(output.end.shell_status(), 2);
  EXPECT_THAT(output.err, HasSubstr("--ranks"));
  output = test::lockstep_command({"train", test::quick_recipe(), "optm.lr=1"});
  EXPECT_EQ(output.end.shell_status(), 2);
  EXPECT_THAT(output.err, HasSubstr("did you mean 'optim'?"));
}

}  // namespace
}  // namespace lockstep
