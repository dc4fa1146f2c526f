// The example of data-parallel training under the launchers that its first lines name.
#include "tests/system/ranks.h"

namespace lockstep {
namespace {

using testing::ContainsRegex;

std::string example() {
  return (test::binary("lockstep").parent_path().parent_path() / "examples" /
          "example_ddp")
      .string();
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
  expect_one_loss({test::binary("lockstep").string(), "launch", "--nproc-per-node", "2",
                   "--tee", "3", "--local-ranks-filter", "0,1", "--", example()});
}

TEST(DdpExample, TrainsUnderTorchrun) {
  LOCKSTEP_NEEDS_ORACLE();
  expect_one_loss({test::torchrun(), "--no-python", "--standalone", "--nproc-per-node",
                   "2", example()});
}

}  // namespace
}  // namespace lockstep
