// The examples of several ranks under the launchers that their first lines name.
#include "tests/system/ranks.h"

namespace lockstep {
namespace {

using testing::ContainsRegex;

std::string example(const std::string& name = "example_ddp") {
  return (test::binary("lockstep").parent_path().parent_path() / "examples" / name)
      .string();
}

std::vector<std::string> under_our_launcher(const std::string& program) {
  return {test::binary("lockstep").string(),
          "launch",
          "--nproc-per-node",
          "2",
          "--tee",
          "3",
          "--local-ranks-filter",
          "0,1",
          "--",
          program};
}

void expect_one_loss(const std::vector<std::string>& command) {
  const files::TemporaryDirectory folder;
  const auto output = process::run(
      {.arguments = command, .environment = {{"TMPDIR", folder.path().string()}}},
      test::kJobPatience);
  EXPECT_EQ(output.end.shell_status(), 0) << output.out << output.err;
  EXPECT_THAT(output.out, ContainsRegex("step 30 loss 0\\.[0-9]+"));
  // Two ranks that have not met would each train alone and say so.
  EXPECT_EQ(output.out.find("step 30"), output.out.rfind("step 30")) << output.out;
}

TEST(DdpExample, TrainsUnderOurLauncher) {
  expect_one_loss(under_our_launcher(example()));
}

TEST(DdpExample, TrainsUnderTorchrun) {
  LOCKSTEP_NEEDS_ORACLE();
  expect_one_loss({test::torchrun(), "--no-python", "--standalone", "--nproc-per-node",
                   "2", example()});
}

TEST(GanExample, TwoRanksLearnOneGenerator) {
  const files::TemporaryDirectory folder;
  const auto output =
      process::run({.arguments = under_our_launcher(example("example_gan")),
                    .environment = {{"TMPDIR", folder.path().string()}}},
                   test::kJobPatience);
  EXPECT_EQ(output.end.shell_status(), 0) << output.out << output.err;
  EXPECT_THAT(output.out, ContainsRegex("mean (3\\.[5-9]|4\\.[0-4])"));
  // Two ranks that have not met would each train alone and print a mean of their own.
  EXPECT_EQ(output.out.find("mean "), output.out.rfind("mean ")) << output.out;
}

}  // namespace
}  // namespace lockstep
