#include "lockstep/launcher/spawn.h"

#include <algorithm>

#include <signal.h>
#include <sys/stat.h>

#include "lockstep/base/text.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Programs of a user's own, which call spawn(): launcher_program.cpp has what they do.
class Spawn : public ::testing::Test {
 protected:
  std::vector<std::string> command(int ranks, std::vector<std::string> words) const {
    words.insert(words.begin(), {test::binary("../tests/launcher_program").string(),
                                 "spawn", std::to_string(ranks)});
    return words;
  }

  // The variables of another launcher around the tests are not meant for these.
  process::Output run(int ranks, std::vector<std::string> words) const {
    return test::run(command(ranks, std::move(words)), {{"TMPDIR", folder_.path()}});
  }

  static std::vector<std::string> sorted_lines(const std::string& text) {
    auto lines = text::split(text, '\n');
    std::sort(lines.begin(), lines.end());
    return lines;
  }

  files::TemporaryDirectory folder_;
};

TEST_F(Spawn, EveryRankIsCalledOnceWithItsRankAndTheProgramsArguments) {
  const auto output = run(3, {"say", "two words", "", "*"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  const auto lines = sorted_lines(output.out);
  ASSERT_EQ(lines.size(), 4U) << output.out;
  for (int rank = 0; rank < 3; ++rank) {
    const auto number = std::to_string(rank);
    EXPECT_THAT(lines[rank + 1], StartsWith("[rank" + number + "]: lockstep: rank " +
                                            number + " of 3 ("));
    EXPECT_THAT(lines[rank + 1], testing::EndsWith(" <say> <two words> <> <*>"));
  }
  EXPECT_THAT(test::names_in(folder_.path()), ElementsAre());  // nothing went wrong
}

TEST_F(Spawn, OneRankIsEnough) {
  const auto output = run(1, {"say"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("rank 0 of 1"));
}

TEST_F(Spawn, AnErrorGivesItsFaultsStatusAndItsText) {
  const auto output = run(3, {"fault"});
  EXPECT_EQ(output.end.shell_status(), 2);
  EXPECT_THAT(output.err, HasSubstr("rank 2"));
  EXPECT_THAT(output.err, HasSubstr("model: no such thing"));
}

TEST_F(Spawn, AnyExceptionIsReportedWithItsText) {
  auto output = run(2, {"throw"});
  EXPECT_EQ(output.end.shell_status(), 1);
  EXPECT_THAT(output.err, HasSubstr("an index of 7"));
  output = run(2, {"throw_number"});
  EXPECT_EQ(output.end.shell_status(), 1);
  EXPECT_THAT(output.err, HasSubstr("is not a std::exception"));
}

TEST_F(Spawn, CrashesAndExitStatusesAreGathered) {
  auto output = run(2, {"segfault"});
  EXPECT_EQ(output.end.shell_status(), 128 + SIGSEGV);
  EXPECT_THAT(output.err, HasSubstr("rank 1"));
  EXPECT_THAT(output.err, HasSubstr("SIGSEGV"));
  output = run(2, {"exit", "9"});
  EXPECT_NE(output.end.shell_status(), 0);
  EXPECT_THAT(output.err, HasSubstr("exit status 9"));
}

TEST_F(Spawn, AfterAFailureTheLogsAreKeptAndNamed) {
  const auto output = run(2, {"throw"});
  const auto names = test::names_in(folder_.path());
  ASSERT_EQ(names.size(), 1U);
  EXPECT_THAT(output.err,
              HasSubstr("its logs are in " + (folder_.path() / names[0]).string()));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / names[0] / "run.json"));
}

TEST_F(Spawn, InARankASecondSpawnIsAnErrorAndNotAnotherWorld) {
  const auto output = run(2, {"nested"});
  EXPECT_EQ(output.end.shell_status(), 2);
  EXPECT_THAT(output.err, HasSubstr("called spawn() a second time"));
}

TEST_F(Spawn, AProgramThatARankStartsHasRanksOfItsOwn) {
  const auto output =
      run(1, {"again", test::binary("../tests/launcher_program").string()});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("rank 0 of 2"));
  EXPECT_THAT(output.out, HasSubstr("rank 1 of 2"));
}

TEST_F(Spawn, NoRanksAtAllIsRefused) {
  const auto output = run(0, {"say"});
  EXPECT_EQ(output.end.shell_status(), 90);
  EXPECT_THAT(output.err, HasSubstr("spawn: 0 ranks are not possible"));
}

TEST_F(Spawn, SigtermEndsAllRanks) {
  auto child = process::Child::start({.arguments = command(2, {"wait"}),
                                      .environment = {{"TMPDIR", folder_.path()}},
                                      .out = process::StreamMode::pipe,
                                      .err = process::StreamMode::discard});
  std::string text;
  while (std::count(text.begin(), text.end(), '\n') < 2) {
    char buffer[512];
    const auto got = ::read(child.out().get(), buffer, sizeof buffer);
    ASSERT_GT(got, 0) << text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  ::kill(child.pid(), SIGTERM);
  const auto end = child.wait_for(test::kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->shell_status(), 128 + SIGTERM);
  for (const auto& line : text::split(text, '\n')) {
    if (line.empty()) continue;
    const auto pid = text::to_integer(line.substr(line.rfind(' ') + 1));
    ASSERT_TRUE(pid.has_value()) << line;
    EXPECT_NE(::kill(static_cast<pid_t>(*pid), 0), 0) << line;
  }
}

}  // namespace
}  // namespace lockstep
