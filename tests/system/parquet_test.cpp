// Parquet with whole programs: trained on as CSV is, and Arrow is loaded by nobody
// else.
#include "tests/support/oracle.h"
#include "tests/system/command.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

class ParquetTable : public testing::Test {
 protected:
  void SetUp() override {
    LOCKSTEP_NEEDS_ORACLE();
    test::expect_oracle_agrees("parquet_files.py", {folder_.path().string()});
  }

  std::string recipe(const std::string& kind) const {
    const auto path = folder_.path() / (kind + ".yaml");
    test::write_file(path,
                     "model: {name: mlp, hidden: 16, layers: 1}\ndata: {name: " + kind +
                         ", dir: " + (folder_.path() / "table" / kind).string() +
                         "}\nbatch: {global: 32}\noptim: {lr: 2e-2}\n"
                         "train: {epochs: 2, log_every: 1}\nparallel: {device: cpu}\n");
    return path.string();
  }

  // What programs of `bin` load when they look at the data of a recipe.
  std::string loaded_by(const test::Path& bin, const std::string& kind) {
    const auto trace = folder_.path() / ("loaded by " + kind);
    std::filesystem::create_directories(trace);
    const auto output = process::run(
        {.arguments = {(bin / "lockstep").string(), "config", "check", recipe(kind)},
         .environment = {{"LD_DEBUG", "files"},
                         {"LD_DEBUG_OUTPUT", (trace / "ld").string()}}},
        test::kPatience);
    EXPECT_EQ(output.end.shell_status(), 0) << output.err;
    std::string all;
    for (const auto& entry : std::filesystem::directory_iterator(trace)) {
      all += test::read_file(entry.path());
    }
    return all;
  }

  static test::Path programs() { return test::binary("lockstep").parent_path(); }

  files::TemporaryDirectory folder_;
};

TEST_F(ParquetTable, IsTrainedOnAsTheSameCsvIs) {
  std::vector<std::vector<double>> losses;
  for (const auto* kind : {"csv", "parquet"}) {
    const auto run = folder_.path() / ("run of " + std::string(kind));
    const auto output =
        test::lockstep_command({"train", recipe(kind), "--run-dir", run.string()});
    ASSERT_EQ(output.end.shell_status(), 0) << output.err;
    losses.push_back(test::losses_in(run));
    EXPECT_THAT(test::read_file(run / "classes.json"), HasSubstr("banana"));
  }
  EXPECT_GT(losses[0].size(), 10u);
  EXPECT_EQ(losses[0], losses[1]);
}

TEST_F(ParquetTable, OtherRunsDoNotLoadArrow) {
  EXPECT_THAT(loaded_by(programs(), "parquet"), HasSubstr("libarrow.so"));
  EXPECT_THAT(loaded_by(programs(), "csv"), Not(HasSubstr("libarrow.so")));
}

TEST_F(ParquetTable, WithoutItsLibraryARunSaysWhatToDo) {
  const auto bin = folder_.path() / "bin";
  std::filesystem::create_directories(bin);
  for (const auto* name : {"lockstep", "lockstep_worker", "liblockstep_worker.so"}) {
    std::filesystem::copy_file(programs() / name, bin / name);
  }
  const auto output =
      test::run({(bin / "lockstep").string(), "config", "check", recipe("parquet")});
  EXPECT_EQ(output.end.shell_status(), 3) << output.out;
  EXPECT_THAT(output.err, HasSubstr("liblockstep_parquet.so"));
  EXPECT_THAT(output.err, HasSubstr("run scripts/setup.sh"));
}

TEST_F(ParquetTable, ABundleReadsItWithTheLibrariesInIt) {
  const auto made =
      test::run({(test::source_root() / "scripts/bundle.sh").string(), "--from",
                 programs().parent_path().string(), "--to", folder_.path().string()});
  ASSERT_TRUE(made.end.ok()) << made.err;
  const test::Path tarball = made.out.substr(0, made.out.find('\n'));
  ASSERT_TRUE(
      test::run({"tar", "-xzf", tarball.string(), "-C", folder_.path().string()})
          .end.ok());
  const auto name = tarball.filename().string();
  const auto bin = folder_.path() / name.substr(0, name.rfind(".tar.gz")) / "bin";
  EXPECT_THAT(loaded_by(bin, "parquet"), HasSubstr((bin / "libarrow.so").string()));
}

}  // namespace
}  // namespace lockstep
