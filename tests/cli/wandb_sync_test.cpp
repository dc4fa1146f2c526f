// What `lockstep train` does with the offline runs of W&B that its worker leaves.
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class WandbSync : public ::testing::Test {
 protected:
  // A program of W&B's name.
  void program(const std::string& script) const {
    const auto path = rig_.path("tools/wandb");
    test::write_file(path, "#!/bin/sh\n" + script);
    std::filesystem::permissions(path, std::filesystem::perms(0755));
  }
  process::Output train(const std::string& key) const {
    auto command = rig_.command({"train", "recipe.yaml"});
    command.environment = {{"PATH", rig_.path("tools").string() + ":/usr/bin:/bin"},
                           {"WANDB_API_KEY", key}};
    return process::run(command, test::kPatience);
  }
  const test::Rig rig_{"mkdir -p \"$2/wandb/offline-run-1-abc\"\n"};
};

TEST_F(WandbSync, HappensWithAKeyAndTheProgram) {
  program("echo \"$@\" > called; exit 0\n");
  const auto output = train("secret");
  EXPECT_EQ(output.end.exit_status, 0);
  EXPECT_THAT(output.err, HasSubstr("wandb: the run is online\n"));
  EXPECT_EQ(test::read_file(rig_.path("called")),
            "sync runs/0001/wandb/offline-run-1-abc\n");
  EXPECT_THAT(output.err + output.out, Not(HasSubstr("secret")));
}

TEST_F(WandbSync, DoesNotHappenWithoutAKey) {
  program("touch called\n");
  EXPECT_EQ(train("").end.exit_status, 0);
  EXPECT_FALSE(std::filesystem::exists(rig_.path("called")));
}

TEST_F(WandbSync, WithoutTheProgramSaysHow) {
  const auto output = train("secret");
  EXPECT_EQ(output.end.exit_status, 0);
  EXPECT_THAT(output.err,
              HasSubstr("there is no program wandb; install it, then `wandb "
                        "sync runs/0001/wandb/offline-run-1-abc`"));
}

TEST_F(WandbSync, AFailureDoesNotChangeHowTheRunEnded) {
  program("echo 'no network' >&2; exit 1\n");
  const auto output = train("secret");
  EXPECT_EQ(output.end.exit_status, 0);
  EXPECT_THAT(output.err,
              HasSubstr("wandb: `wandb sync` ended with exit status 1: no network"));
}

// A run that syncs all the time, with this program in the place of W&B's.
auto train_with(const test::Rig& rig, const std::string& program) {
  const auto path = rig.path("tools/wandb");
  test::write_file(path, program);
  std::filesystem::permissions(path, std::filesystem::perms(0755));
  auto command = rig.command(
      {"train", "recipe.yaml", "monitor.sinks=wandb", "monitor.wandb_sync_every=10ms"});
  command.environment = {{"PATH", rig.path("tools").string() + ":/usr/bin:/bin"},
                         {"WANDB_API_KEY", "secret"}};
  return process::run(command, test::kPatience);
}

// The run goes on until W&B's program was called twice: were it called only after the
// run, there would be no end.
TEST_F(WandbSync, HappensDuringTheRunToo) {
  const test::Rig rig(
      "mkdir -p \"$2/wandb/offline-run-1-abc\"\n"
      "for i in $(seq 2000); do\n"
      "  [ \"$(cat calls 2>/dev/null | wc -l)\" -ge 2 ] && touch seen && exit 0\n"
      "  sleep 0.01\n"
      "done\n");
  // It fails, and is slow to end: neither is the run's concern.
  const auto output = train_with(rig, "#!/bin/sh\necho \"$@\" >> calls\nexit 1\n");
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_TRUE(std::filesystem::exists(rig.path("seen")));
  EXPECT_THAT(test::read_file(rig.path("calls")),
              testing::StartsWith("sync runs/0001/wandb/offline-run-1-abc\n"));
}

TEST_F(WandbSync, OneThatHangsDoesNotHoldTheRunUp) {
  const test::Rig rig(
      "mkdir -p \"$2/wandb/offline-run-1-abc\"\n"
      "for i in $(seq 2000); do [ -e hung ] && exit 0; sleep 0.01; done\n");
  // The first call hangs; the one after the run does not.
  const auto output =
      train_with(rig, "#!/bin/sh\n[ -e hung ] || { touch hung; sleep 1000; }\n");
  EXPECT_EQ(output.end.exit_status, 0) << output.err;
  EXPECT_THAT(output.err, HasSubstr("wandb: the run is online\n"));
}

TEST_F(WandbSync, CanBeLeftToTheEnd) {
  program("echo \"$@\" >> calls\n");
  auto command = rig_.command(
      {"train", "recipe.yaml", "monitor.sinks=wandb", "monitor.wandb_sync_every=0s"});
  command.environment = {{"PATH", rig_.path("tools").string() + ":/usr/bin:/bin"},
                         {"WANDB_API_KEY", "secret"}};
  EXPECT_EQ(process::run(command, test::kPatience).end.exit_status, 0);
  EXPECT_EQ(test::read_file(rig_.path("calls")),
            "sync runs/0001/wandb/offline-run-1-abc\n");
}

}  // namespace
}  // namespace lockstep
