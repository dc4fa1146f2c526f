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

TEST_F(BadInput, AStageThatIsNotThereAndARunThatIsNotAreRefused) {
  EXPECT_THAT(refused(test::quick_recipe(),
                      {"parallel.strategy=zero", "parallel.zero_stage=4"}),
              HasSubstr("parallel.zero_stage"));
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
    const auto says = [&](const char* part) {
      return output.err.find(part) != std::string::npos;
    };
    const bool named = says("parameters 15.6 TiB + gradients 15.6 TiB") &&
                       says("nothing fits on this machine");
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
  EXPECT_EQ(run::RunDirectory::open(folder_.path() / "r").read_record().state,
            run::RunStatus::failed);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "r" / "model.safetensors"));
}

// A command, what it has to say, and with which status it has to end.
struct Refused {
  std::vector<std::string> words;
  std::string said;
  int status = 2;
};

TEST_F(BadInput, EveryMessageNamesWhatIsWrong) {
  const auto place = [&](const std::string& name) {
    return (folder_.path() / name).string();
  };
  test::write_file(place("file"), "text");
  test::write_file(place("taken/x"), "text");
  test::write_file(place("x.pt"), "PK\x03\x04 and so on");
  test::write_file(place("broken/run.json"), "{\"format\": ");
  const auto recipe = test::quick_recipe();
  const Refused rows[] = {
      {{"train", recipe, "--run-dir", place("file")},
       "file' cannot be made: there is a file of that name"},
      {{"train", recipe, "--run-dir", place("taken")},
       "the run directory '" + place("taken") + "' exists already"},
      {{"train", recipe, "--run-dir", place("a\nb")},
       "run.name: has control character 10; write it on one line"},
      {{"train", recipe, "--run-dir", place("r1"), "model.weights=" + place("x.pt")},
       "lockstep checkpoint import " + place("x.pt") + " --to " +
           place("x.safetensors")},
      {{"train", recipe, "--run-dir", place("r2"), "optim={lr: 5}"},
       "'optim' is a section; set its keys one by one: optim.name, optim.lr, "},
      {{"train", "", "--run-dir", place("r3")}, "the name of the recipe is empty"},
      {{"train", recipe, "--run-dir", place("r4"), "run.seed=\xFF"},
       "override 'run.seed=\\xff': run.seed: not UTF-8 at byte 1; write the value in "
       "UTF-8"},
      {{"plan", recipe, "batch.global=66", "batch.micro=5", "parallel.ranks=3"},
       "66 / parallel.ranks 3 = 22 is not a multiple of batch.micro=5: 22 = 4 * 5 + 2; "
       "choose 75"},
      {{"status", place("broken")},
       "run.json: is damaged: it is not JSON from byte",
       3},
  };
  for (const auto& row : rows) {
    const auto output = test::lockstep_command(row.words);
    EXPECT_EQ(output.end.shell_status(), row.status) << output.err;
    EXPECT_EQ(output.out, "");
    EXPECT_THAT(output.err, HasSubstr(row.said));
    EXPECT_EQ(test::count_of(output.err, "error: "), 1) << output.err;
  }
  const auto advised = test::lockstep_command(
      {"plan", recipe, "batch.global=75", "batch.micro=5", "parallel.ranks=3"});
  EXPECT_EQ(advised.end.shell_status(), 0) << advised.err;
}

TEST_F(BadInput, WeightsThatAreNanSaySo) {
  const std::vector<std::string> few{"model.name=mlp", "model.hidden=8",
                                     "train.steps=1", "data.eval_samples=8"};
  const auto train = [&](const std::string& run, const std::string& weights) {
    auto words = few;
    words.insert(words.begin(), {"train", test::quick_recipe(), "--run-dir",
                                 (folder_.path() / run).string()});
    if (!weights.empty()) words.push_back("model.weights=" + weights);
    return test::lockstep_command(words);
  };
  const auto first = train("first", "");
  ASSERT_EQ(first.end.shell_status(), 0) << first.err;
  const auto file = folder_.path() / "first" / "model.safetensors";
  auto bytes = test::read_file(file);
  bytes.replace(bytes.size() - 4, 4, "\xFF\xFF\xFF\xFF");
  test::write_file(folder_.path() / "nan.safetensors", bytes);
  const auto output = train("second", (folder_.path() / "nan.safetensors").string());
  EXPECT_EQ(output.end.shell_status(), 2) << output.err;
  EXPECT_THAT(output.err, HasSubstr("model.weights: "));
  EXPECT_THAT(output.err, HasSubstr("are NaN; training cannot begin with them"));
}

TEST_F(BadInput, AFullStandardOutputIsNamedWithTheReason) {
  const std::vector<std::pair<std::string, int>> programs{
      {"/lockstep version", shell_status(Fault::io)},
      {"/lockstep_worker --version", exit_status(Fault::io)}};
  for (const auto& [words, status] : programs) {
    const auto program = test::binary("lockstep").parent_path().string() + words;
    const auto output = test::run({"sh", "-c", program + " > /dev/full"});
    EXPECT_EQ(output.end.shell_status(), status) << output.err;
    EXPECT_THAT(output.err, HasSubstr("standard output: No space left on device"));
  }
}

TEST_F(BadInput, AKnobThatIsNotUsedGetsOneLine) {
  const auto output = test::lockstep_command(
      {"plan", test::quick_recipe(), "parallel.zero_stage=2", "parallel.ranks=1"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_EQ(test::count_of(output.out, "is not used"), 1) << output.out;
  EXPECT_THAT(output.out, HasSubstr("parallel.zero_stage=2 is not used: it needs "
                                    "parallel.strategy=zero"));
}

TEST_F(BadInput, TheWorkerSaysHowItIsUsed) {
  const auto output = test::run({test::binary("lockstep_worker").string(), "--help"},
                                {{"LOCKSTEP_LIBTORCH", "/nowhere"}});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("--run-dir DIR"));
  EXPECT_EQ(output.err, "");
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
  EXPECT_THAT(output.err, HasSubstr("did you mean 'optim.lr'?"));
}

}  // namespace
}  // namespace lockstep
