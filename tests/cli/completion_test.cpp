#include "lockstep/base/text.h"
#include "lockstep/config/load.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using test::lockstep_in_process;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

bool has_shell(const std::string& name) {
  return test::run({"/bin/sh", "-c", "command -v " + name}).end.ok();
}

// What bash offers for the last of `words`, asked of a real bash in a directory that
// holds "my recipe.yaml".
std::vector<std::string> bash_offers(const std::vector<std::string>& words) {
  const files::TemporaryDirectory directory;
  test::write_file(directory.path() / "script",
                   lockstep_in_process({"completion", "bash"}).out);
  test::write_file(directory.path() / "there" / "my recipe.yaml", "");
  std::string line = "source ../script; COMP_WORDS=(lockstep";
  for (const auto& word : words) line += " '" + word + "'";
  line +=
      "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _lockstep; printf '%s\\n' "
      "\"${COMPREPLY[@]}\"";
  const auto output = process::run({.arguments = {"bash", "--norc", "-c", line},
                                    .environment = {},
                                    .directory = directory.path() / "there"},
                                   test::kPatience);
  EXPECT_TRUE(output.end.ok()) << output.err;
  EXPECT_THAT(output.err, IsEmpty());
  auto offers = text::split(text::trim(output.out), '\n');
  if (offers == std::vector<std::string>{""}) offers.clear();
  return offers;
}

class BashCompletion : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(has_shell("bash")); }
};

TEST_F(BashCompletion, OffersTheCommands) {
  EXPECT_THAT(bash_offers({""}),
              IsSupersetOf({"train", "launch", "config", "runs", "status", "checkpoint",
                            "doctor", "version", "completion", "help"}));
  EXPECT_THAT(bash_offers({"tr"}), ElementsAre("train"));
}

TEST_F(BashCompletion, OffersTheOptionsOfTheCommand) {
  EXPECT_THAT(bash_offers({"train", "--r"}),
              ElementsAre("--ranks", "--run-dir", "--resume"));
  EXPECT_THAT(bash_offers({"version", "--"}),
              ElementsAre("--json", "--help", "--no-color"));
}

TEST_F(BashCompletion, OffersTheValuesOfAnOption) {
  EXPECT_THAT(bash_offers({"train", "x.yaml", "--resume", "n"}), ElementsAre("never"));
  EXPECT_THAT(bash_offers({"train", "--ranks", ""}), IsEmpty());
  EXPECT_THAT(bash_offers({"launch", "--binding", ""}),
              ElementsAre("none", "numa", "cores"));
}

TEST_F(BashCompletion, OffersKnobsAndFiles) {
  EXPECT_THAT(bash_offers({"train", "x.yaml", "optim.mom"}),
              ElementsAre("optim.momentum="));
  EXPECT_THAT(bash_offers({"train", "my"}), ElementsAre("my recipe.yaml"));
  EXPECT_THAT(bash_offers({"train", "x.yaml", "optim.lr", "=", ""}), IsEmpty());
}

TEST_F(BashCompletion, OffersTheChoicesOfAWord) {
  EXPECT_THAT(bash_offers({"completion", ""}), ElementsAre("bash", "zsh", "fish"));
  EXPECT_THAT(bash_offers({"config", "s"}), Contains("show"));
  EXPECT_THAT(bash_offers({"help", "doc"}), ElementsAre("doctor"));
}

// Every command, option and knob is in every script, however the shells spell them.
TEST(Completion, ScriptsHoldTheWholeSurface) {
  for (const auto* shell : {"bash", "zsh", "fish"}) {
    const auto outcome = lockstep_in_process({"completion", shell});
    ASSERT_EQ(outcome.status, 0);
    for (const auto& command : cli::commands()) {
      EXPECT_THAT(outcome.out, HasSubstr(command.name)) << shell;
      for (const auto& option : command.options) {
        const auto name =
            std::string(shell) == "fish" ? "-l " + option.name.substr(2) : option.name;
        if (option.refusal.empty()) {
          EXPECT_THAT(outcome.out, HasSubstr(name)) << shell;
        } else {
          EXPECT_THAT(outcome.out, Not(HasSubstr(name))) << shell;
        }
      }
    }
    for (const auto& key : config::keys()) {
      EXPECT_THAT(outcome.out, HasSubstr(key + "=")) << shell;
    }
  }
}

TEST(Completion, ScriptsAreValidForTheShellsThatAreHere) {
  const files::TemporaryDirectory directory;
  for (const std::string shell : {"bash", "zsh", "fish"}) {
    const auto script = lockstep_in_process({"completion", shell}).out;
    // An odd number of quotes is what a help text with an apostrophe would leave.
    EXPECT_EQ(std::count(script.begin(), script.end(), '\'') % 2, 0) << shell;
    if (!has_shell(shell)) continue;
    const auto path = directory.path() / shell;
    test::write_file(path, script);
    const auto output = test::run({shell, "-n", path.string()});
    EXPECT_TRUE(output.end.ok()) << shell << ": " << output.err;
  }
}

TEST(Completion, AnUnknownShellGetsASuggestion) {
  const auto outcome = lockstep_in_process({"completion", "bsah"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean 'bash'?"));
}

}  // namespace
}  // namespace lockstep
