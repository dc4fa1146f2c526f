#include <algorithm>

#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using test::lockstep_in_process;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The surface people's scripts rely on. After a wanted change:
//   LOCKSTEP_UPDATE_SNAPSHOTS=1 build/tests/test_cli --gtest_filter='Help.*'
TEST(Help, TheSurfaceIsTheRecordedOne) {
  std::string text = cli::overview();
  for (const auto& command : cli::commands()) {
    text += "\n--- lockstep " + command.name + " --help\n" + cli::help_for(command);
  }
  const auto path = test::fixture("cli/help.txt");
  if (std::getenv("LOCKSTEP_UPDATE_SNAPSHOTS") != nullptr) test::write_file(path, text);
  EXPECT_EQ(test::read_file(path), text);
}

TEST(Help, AskedForItIsAResult) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--help"}, {"-h"}, {"help"}}) {
    const auto outcome = lockstep_in_process(words);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.out, cli::overview());
    EXPECT_THAT(outcome.err, IsEmpty());
  }
}

TEST(Help, WithoutACommandItIsAComplaint) {
  const auto outcome = lockstep_in_process({});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_EQ(outcome.err, cli::overview());
}

TEST(Help, OfACommandIsTheSameBothWays) {
  for (const auto& command : cli::commands()) {
    const auto by_option = lockstep_in_process({command.name, "--help"});
    EXPECT_EQ(by_option.status, 0) << command.name;
    EXPECT_EQ(by_option.out, lockstep_in_process({"help", command.name}).out);
    EXPECT_THAT(by_option.out, HasSubstr("Usage: lockstep " + command.name));
  }
}

TEST(Help, WinsOverMistakes) {
  EXPECT_EQ(lockstep_in_process({"train", "--no-such-option", "--help"}).status, 0);
}

TEST(Help, LinesFitAScreen) {
  std::string text = cli::overview();
  for (const auto& command : cli::commands()) text += cli::help_for(command);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_LE(line.size(), 88U) << line;
}

TEST(Commands, AnUnknownOneGetsASuggestion) {
  const auto outcome = lockstep_in_process({"trian", "x.yaml"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.err,
            "lockstep: error: unknown command 'trian'; did you mean 'train'?\n");
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(lockstep_in_process({"qqqqqq"}).err,
              HasSubstr("`lockstep help` lists them"));
  EXPECT_THAT(lockstep_in_process({"help", "statsu"}).err,
              HasSubstr("did you mean 'status'?"));
}

TEST(Commands, ErrorsDoNotCommandTheTerminal) {
  EXPECT_THAT(lockstep_in_process({"\x1b]0;x\a\xC2\x9B\x7F\r"}).err,
              HasSubstr("unknown command '\\x1b]0;x\\x07\\x9b\\x7f\\x0d'"));
  EXPECT_THAT(lockstep_in_process({"\xC3\xA4\t\xC2\xA0\n"}).err,
              HasSubstr("unknown command '\xC3\xA4\t\xC2\xA0\n'"));
}

TEST(Commands, AnOptionBeforeTheCommandIsExplained) {
  const auto outcome = lockstep_in_process({"--json", "version"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("a command comes first"));
}

TEST(Commands, ReadingOnesTakeJson) {
  for (const auto* name : {"version", "doctor", "runs", "status", "config"}) {
    for (const auto& command : cli::commands()) {
      if (command.name != name) continue;
      EXPECT_TRUE(
          std::any_of(command.options.begin(), command.options.end(),
                      [](const auto& option) { return option.name == "--json"; }))
          << name;
    }
  }
}

TEST(Commands, AreDeclaredCompletely) {
  for (const auto& command : cli::commands()) {
    EXPECT_FALSE(command.summary.empty()) << command.name;
    EXPECT_TRUE(command.run) << command.name;
    for (const auto& option : command.options) {
      EXPECT_EQ(option.name.substr(0, 2), "--") << command.name;
      // One that is refused explains itself when it is used.
      EXPECT_NE(option.help.empty(), option.refusal.empty())
          << command.name << " " << option.name;
    }
  }
}

TEST(ConfigReference, TakesNothingButJson) {
  for (const std::string word : {"x.yaml", "optim.lr=1", "--plan"}) {
    const auto outcome = lockstep_in_process({"config", "reference", word});
    EXPECT_EQ(outcome.status, 2) << word;
    EXPECT_THAT(outcome.err, HasSubstr("config reference: lists every knob"));
    EXPECT_THAT(outcome.out, IsEmpty());
  }
  EXPECT_THAT(lockstep_in_process({"config", "reference"}).out,
              ::testing::StartsWith("# Configuration reference"));
  EXPECT_THAT(lockstep_in_process({"config", "reference", "--json"}).out,
              ::testing::StartsWith("{\"knobs\": ["));
}

TEST(Version, IsOneLineOrOneObject) {
  const auto plain = lockstep_in_process({"version"});
  EXPECT_EQ(plain.status, 0);
  EXPECT_THAT(plain.out, ::testing::MatchesRegex("lockstep [0-9.]+ \\(git .*\\)\n"));
  EXPECT_EQ(lockstep_in_process({"--version"}).out, plain.out);
  const auto object = lockstep_in_process({"version", "--json"});
  EXPECT_THAT(object.out, HasSubstr("\"name\":\"lockstep\",\"version\":\""));
  for (const auto* field : {"\"git\":", "\"compiler\":", "\"build_type\":"}) {
    EXPECT_THAT(object.out, HasSubstr(field));
  }
}

}  // namespace
}  // namespace lockstep
