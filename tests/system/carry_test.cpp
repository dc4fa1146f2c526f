// The binaries work when they are copied to another place, and say one clear line where
// LibTorch is missing.
#include <cstdlib>

#include "tests/system/command.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class Carry : public testing::Test {
 protected:
  Carry() {
    for (const auto* name : {"lockstep", "lockstep_worker", "liblockstep_worker.so"}) {
      std::filesystem::create_directories(bin_);
      std::filesystem::copy_file(test::binary(name), bin_ / name);
    }
  }

  files::TemporaryDirectory folder_;
  test::Path bin_ = folder_.path() / "a path with spaces" / "bin";
};

TEST_F(Carry, TrainsFromAnotherPlaceWithSpacesInItsPath) {
  const auto run = folder_.path() / "my runs" / "first run";
  const auto output =
      process::run({.arguments = {(bin_ / "lockstep").string(), "train",
                                  test::quick_recipe(), "--run-dir", run.string()}},
                   std::chrono::minutes(2));
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_TRUE(std::filesystem::exists(run / "model.safetensors"));
}

TEST_F(Carry, AMissingLibTorchIsOneClearLine) {
  const auto output = process::run(
      {.arguments = {(bin_ / "lockstep_worker").string(), "--version"},
       .environment = {{"LOCKSTEP_LIBTORCH", (folder_.path() / "none").string()}}},
      test::kPatience);
  EXPECT_EQ(output.end.shell_status(), 3);
  EXPECT_THAT(output.err, HasSubstr("LOCKSTEP_LIBTORCH"));
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
}

TEST_F(Carry, TrainShowsTheSameLine) {
  const auto output = process::run(
      {.arguments = {(bin_ / "lockstep").string(), "train", test::quick_recipe(),
                     "--run-dir", (folder_.path() / "r").string()},
       .environment = {{"LOCKSTEP_LIBTORCH", (folder_.path() / "none").string()}}},
      test::kPatience);
  EXPECT_EQ(output.end.shell_status(), 3) << output.err;
  EXPECT_THAT(output.err, HasSubstr("lockstep: error: LOCKSTEP_LIBTORCH"));
}

TEST_F(Carry, ABundleTrainsWhereItIsUnpacked) {
  const auto source = test::source_root();
  const auto build = test::binary("lockstep").parent_path().parent_path();
  const auto made = test::run({(source / "scripts/bundle.sh").string(), "--from",
                               build.string(), "--to", folder_.path().string()});
  ASSERT_TRUE(made.end.ok()) << made.err;
  const auto tarball = made.out.substr(0, made.out.find('\n'));
  ASSERT_TRUE(
      test::run({"tar", "-xzf", tarball, "-C", folder_.path().string()}).end.ok());
  const auto name = std::filesystem::path(tarball).filename().string();
  const auto bundle = folder_.path() / name.substr(0, name.rfind(".tar.gz"));
  const auto run = folder_.path() / "run";
  const auto output = process::run(
      {.arguments = {(bundle / "bin/lockstep").string(), "train",
                     (bundle / "recipes/fashion_mnist_quick.yaml").string(),
                     "train.steps=2", "--run-dir", run.string()}},
      std::chrono::minutes(2));
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_TRUE(std::filesystem::exists(run / "model.safetensors"));
}

TEST_F(Carry, TheLibTorchOfABundleIsTakenBeforeThatOfTheBuild) {
  const auto lib = bin_.parent_path() / "libtorch" / "lib";
  std::filesystem::create_directories(lib);
  files::write_atomically(lib / "libtorch_cpu.so", "");
  files::write_atomically(lib.parent_path() / "version.py", "__version__ = '9.8.7'\n");
  const auto output =
      process::run({.arguments = {(bin_ / "lockstep_worker").string(), "--version"}},
                   test::kPatience);
  EXPECT_EQ(output.end.shell_status(), 3);
  EXPECT_THAT(output.err, HasSubstr("libtorch is version 9.8.7"));
}

TEST_F(Carry, TheSmallLibrariesAreLinkedIn) {
  for (const auto* name : {"lockstep", "liblockstep_worker.so"}) {
    const auto output = test::run({"readelf", "-d", (bin_ / name).string()});
    ASSERT_TRUE(output.end.ok()) << output.err;
    for (const auto* library : {"yaml", "fmt", "spdlog", "libz.so"}) {
      EXPECT_THAT(output.out, testing::Not(HasSubstr(library))) << name;
    }
  }
}

}  // namespace
}  // namespace lockstep
