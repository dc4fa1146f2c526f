#include "lockstep/launcher/log_pump.h"

#include <condition_variable>
#include <mutex>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "lockstep/launcher/rotating_file.h"
#include "tests/launcher/chatter.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using launcher::LogPump;
using launcher::RotatingFile;
using launcher::StdStreams;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string launcher_program() {
  return test::binary("../tests/launcher_program").string();
}

process::Child start_piped(std::vector<std::string> arguments) {
  return process::Child::start({.arguments = std::move(arguments),
                                .out = process::StreamMode::pipe,
                                .err = process::StreamMode::pipe});
}

process::Child start_chatter(int rank, long bytes) {
  return start_piped(
      {launcher_program(), "chatter", std::to_string(rank), std::to_string(bytes)});
}

// A log with what was moved away from it, oldest first.
std::string with_rotated(const files::Path& log) {
  std::string all = test::read_file(log);
  for (int number = 1;; ++number) {
    const files::Path moved = log.string() + "." + std::to_string(number);
    if (!std::filesystem::exists(moved)) return all;
    all.insert(0, test::read_file(moved));
  }
}

// Every line of a rank's two streams, each stream in its order, and nothing else.
void expect_all_chatter(const std::string& text, int rank, long bytes,
                        const std::string& prefix = "") {
  long left = bytes;
  int lines = 0;
  for (; left > 0; ++lines) left -= test::chatter_line(rank, 'o', lines).size() * 2;
  int next_out = 0, next_err = 0;
  for (const auto& line : text::split(text, '\n')) {
    if (line.empty() && next_out == lines && next_err == lines)
      break;  // behind the end
    const bool is_out = line == prefix + test::chatter_line(rank, 'o', next_out)
                                             .substr(0, line.size() - prefix.size());
    const auto wanted = is_out ? test::chatter_line(rank, 'o', next_out++)
                               : test::chatter_line(rank, 'e', next_err++);
    ASSERT_EQ(line + "\n", prefix + wanted) << "rank " << rank;
  }
  EXPECT_EQ(next_out, lines) << "rank " << rank;
  EXPECT_EQ(next_err, lines) << "rank " << rank;
}

// What a terminal gets, and a gate in front of it.
class FakeConsole {
 public:
  LogPump::Show show() {
    return [this](StdStreams stream, std::string_view lines) {
      std::unique_lock lock(mutex_);
      open_.wait(lock, [this] { return is_open_; });
      text_ += lines;
      (stream == StdStreams::out ? out_ : err_) += lines;
    };
  }
  void set_open(bool is_open) {
    const std::scoped_lock lock(mutex_);
    is_open_ = is_open;
    open_.notify_all();
  }
  // After finish().
  const std::string& text() const { return text_; }
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  std::mutex mutex_;
  std::condition_variable open_;
  bool is_open_ = true;
  std::string text_, out_, err_;
};

long size_of(const files::Path& file) {
  std::error_code none;
  const auto size = std::filesystem::file_size(file, none);
  return none ? 0 : static_cast<long>(size);
}

class LogPumpTest : public ::testing::Test {
 protected:
  files::Path log(int rank) const {
    return folder_.path() / ("rank_" + std::to_string(rank) + ".log");
  }

  // Runs a shell script as the only rank.
  void run(const std::string& script, StdStreams shown = StdStreams::both,
           std::chrono::milliseconds limit = test::kPatience) {
    LogPump pump({.show = console_.show()});
    auto child = start_piped({"/bin/sh", "-c", script});
    pump.add({.out = std::move(child.out()),
              .err = std::move(child.err()),
              .log = log(0),
              .shown = shown,
              .prefix = "[rank0]: "});
    child.wait();
    pump.finish(limit);
  }

  files::TemporaryDirectory folder_;
  FakeConsole console_;
};

TEST_F(LogPumpTest, LosesAndTearsNoLineOfEightBusyRanks) {
  constexpr int kRanks = 8;
  constexpr long kBytes = 6 << 20;
  LogPump pump({.rotate_bytes = 1 << 20, .keep = 20, .show = console_.show()});
  std::vector<process::Child> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    auto& child = children.emplace_back(start_chatter(rank, kBytes));
    pump.add({.out = std::move(child.out()),
              .err = std::move(child.err()),
              .log = log(rank),
              .shown = rank == 3 ? StdStreams::both : StdStreams::nothing,
              .prefix = "[rank3]: "});
  }
  for (auto& child : children) EXPECT_TRUE(child.wait().ok());
  pump.finish(test::kPatience);
  for (int rank = 0; rank < kRanks; ++rank) {
    expect_all_chatter(with_rotated(log(rank)), rank, kBytes);
    EXPECT_LE(size_of(log(rank).string() + ".1"), 1 << 20);
    EXPECT_GT(size_of(log(rank).string() + ".1"), 0);
  }
  expect_all_chatter(console_.text(), 3, kBytes, "[rank3]: ");
}

TEST_F(LogPumpTest, LinesOfTwoRanksOnTheTerminalStayWhole) {
  constexpr long kBytes = 1 << 20;
  LogPump pump({.show = console_.show()});
  std::vector<process::Child> children;
  for (int rank = 0; rank < 2; ++rank) {
    auto& child = children.emplace_back(start_chatter(rank, kBytes));
    pump.add({.out = std::move(child.out()),
              .err = std::move(child.err()),
              .log = log(rank),
              .shown = StdStreams::both,
              .prefix = rank == 0 ? "[rank0]: " : "[rank1]: "});
  }
  for (auto& child : children) child.wait();
  pump.finish(test::kPatience);
  std::string texts[2];
  for (const auto& line : text::split(console_.text(), '\n')) {
    if (!line.empty()) texts[line.starts_with("[rank1]: ") ? 1 : 0] += line + "\n";
  }
  expect_all_chatter(texts[0], 0, kBytes, "[rank0]: ");
  expect_all_chatter(texts[1], 1, kBytes, "[rank1]: ");
}

// Ctrl-S: the logs go on, and nothing is lost on the terminal either.
TEST_F(LogPumpTest, ATerminalThatStandsStillDoesNotHoldUpTheLogs) {
  constexpr long kBytes = 4 << 20;
  console_.set_open(false);
  LogPump pump({.show = console_.show()});
  auto child = start_chatter(0, kBytes);
  pump.add({.out = std::move(child.out()),
            .err = std::move(child.err()),
            .log = log(0),
            .shown = StdStreams::both,
            .prefix = "[rank0]: "});
  EXPECT_TRUE(child.wait_for(test::kPatience).has_value());
  EXPECT_TRUE(test::eventually([&] { return size_of(log(0)) >= kBytes; }));
  console_.set_open(true);
  pump.finish(test::kPatience);
  expect_all_chatter(test::read_file(log(0)), 0, kBytes);
  expect_all_chatter(console_.text(), 0, kBytes, "[rank0]: ");
}

TEST_F(LogPumpTest, ATerminalThatIsFarBehindHoldsUpOnlyWhatIsShownThere) {
  constexpr long kShown = 24 << 20;  // more than waits in memory
  constexpr long kNotShown = 1 << 20;
  console_.set_open(false);
  LogPump pump({.show = console_.show()});
  auto shown = start_chatter(0, kShown);
  pump.add({.out = std::move(shown.out()),
            .err = std::move(shown.err()),
            .log = log(0),
            .shown = StdStreams::both,
            .prefix = ""});
  EXPECT_TRUE(test::eventually([&] { return size_of(log(0)) >= 15 << 20; }));
  auto other = start_chatter(1, kNotShown);
  pump.add(
      {.out = std::move(other.out()), .err = std::move(other.err()), .log = log(1)});
  EXPECT_TRUE(other.wait_for(test::kPatience).has_value());
  EXPECT_FALSE(shown.poll().has_value());
  EXPECT_LT(size_of(log(0)), 18 << 20);
  console_.set_open(true);
  EXPECT_TRUE(shown.wait_for(test::kPatience).has_value());
  pump.finish(test::kPatience);
  expect_all_chatter(console_.text(), 0, kShown);
  expect_all_chatter(test::read_file(log(1)), 1, kNotShown);
}

TEST_F(LogPumpTest, StreamsAreChosenByTheMask) {
  run("echo one; echo two >&2", StdStreams::err);
  EXPECT_EQ(console_.text(), "[rank0]: two\n");
  EXPECT_EQ(console_.out(), "");
  EXPECT_THAT(test::read_file(log(0)), HasSubstr("one\n"));
  EXPECT_THAT(test::read_file(log(0)), HasSubstr("two\n"));
}

TEST_F(LogPumpTest, ALastLineWithoutANewlineGetsOne) {
  run("printf 'one\\ntwo'");
  EXPECT_EQ(console_.text(), "[rank0]: one\n[rank0]: two\n");
  EXPECT_EQ(test::read_file(log(0)), "one\ntwo\n");
}

TEST_F(LogPumpTest, ControlCharactersAreTheRanksOwn) {
  run("printf 'a\\033[31mb\\000c\\377\\n'");
  EXPECT_EQ(console_.text(), std::string("[rank0]: a\033[31mb\0c\377\n", 20));
}

TEST_F(LogPumpTest, AProgressBarIsShownWhileItMoves) {
  LogPump pump({.show = console_.show()});
  const auto gate = folder_.path() / "gate";
  ::mkfifo(gate.c_str(), 0600);
  auto child = start_piped({"/bin/sh", "-c",
                            "printf '10%%\\r20%%\\r30%%'; cat " + gate.string() +
                                "; printf '\\r\\n'; printf 'done\\r\\n'"});
  pump.add({.out = std::move(child.out()),
            .err = std::move(child.err()),
            .log = log(0),
            .shown = StdStreams::both,
            .prefix = "[rank0]: "});
  EXPECT_TRUE(
      test::eventually([&] { return test::read_file(log(0)) == "10%\r20%\r"; }));
  files::Descriptor(::open(gate.c_str(), O_WRONLY)).reset();
  child.wait();
  pump.finish(test::kPatience);
  EXPECT_EQ(console_.text(),
            "[rank0]: 10%\r[rank0]: 20%\r[rank0]: 30%\r\n[rank0]: done\r\n");
  EXPECT_EQ(test::read_file(log(0)), "10%\r20%\r30%\r\ndone\r\n");
}

TEST_F(LogPumpTest, AnEndlessLineIsPassedOnInPieces) {
  const auto gate = folder_.path() / "gate";
  ::mkfifo(gate.c_str(), 0600);
  LogPump pump({.show = console_.show()});
  auto child =
      start_piped({"/bin/sh", "-c",
                   "head -c 300000 /dev/zero | tr '\\0' x; cat " + gate.string() +
                       "; echo warning >&2; cat " + gate.string() + "; printf yyy"});
  pump.add({.out = std::move(child.out()),
            .err = std::move(child.err()),
            .log = log(0),
            .shown = StdStreams::both,
            .prefix = "[rank0]: "});
  // All but what is not worth a piece is there, although the line has no end.
  EXPECT_TRUE(test::eventually(
      [&] { return test::read_file(log(0)).size() > 300'000 - (64 << 10); }));
  files::Descriptor(::open(gate.c_str(), O_WRONLY)).reset();
  EXPECT_TRUE(test::eventually(
      [&] { return test::read_file(log(0)).find("warning") != std::string::npos; }));
  files::Descriptor(::open(gate.c_str(), O_WRONLY)).reset();
  child.wait();
  pump.finish(test::kPatience);
  const auto text = test::read_file(log(0));
  const auto lines = text::split(text, '\n');
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[1], "warning");
  EXPECT_EQ(lines[0] + lines[2], std::string(300'000, 'x') + "yyy");
  EXPECT_EQ(console_.text(),
            "[rank0]: " + lines[0] + "\n[rank0]: warning\n[rank0]: " + lines[2] + "\n");
}

TEST_F(LogPumpTest, AProcessThatKeepsThePipeOpenDoesNotHoldUpTheEnd) {
  const auto gate = folder_.path() / "gate";
  ::mkfifo(gate.c_str(), 0600);
  run("cat " + gate.string() + " & printf 'the end'", StdStreams::both,
      std::chrono::milliseconds(50));
  EXPECT_EQ(test::read_file(log(0)), "the end\n");
  EXPECT_EQ(console_.text(), "[rank0]: the end\n");
  files::Descriptor(::open(gate.c_str(), O_WRONLY)).reset();  // the process ends
}

TEST_F(LogPumpTest, NorDoesOneThatPrintsWithoutEnd) {
  // It ends by SIGPIPE once the pump has closed the pipe.
  run("echo begin; yes & exit 0", StdStreams::nothing, std::chrono::milliseconds(50));
  // Too long to be shown. On a busy machine it has not begun to print by then.
  EXPECT_EQ(with_rotated(log(0)).substr(0, 6), "begin\n");
}

TEST_F(LogPumpTest, FurtherRanksCanBeAddedAfterTheEnd) {
  LogPump pump({.show = console_.show()});
  for (const std::string word : {"first", "second"}) {
    auto child = start_piped({"/bin/echo", word});
    pump.add(
        {.out = std::move(child.out()), .err = std::move(child.err()), .log = log(0)});
    child.wait();
    pump.finish(test::kPatience);
    EXPECT_THAT(test::read_file(log(0)), testing::EndsWith(word + "\n"));
  }
  EXPECT_EQ(test::read_file(log(0)), "first\nsecond\n");
}

TEST_F(LogPumpTest, AFullDiskIsSaidOnceAndTheTerminalGoesOn) {
  constexpr long kBytes = 1 << 20;
  constexpr long kDisk = 200'000;
  const int status = test::in_child([&] {
    test::limit_file_size(kDisk);
    LogPump pump({.show = console_.show()});
    std::vector<process::Child> children;
    for (int rank = 0; rank < 2; ++rank) {
      auto& child = children.emplace_back(start_chatter(rank, kBytes));
      pump.add({.out = std::move(child.out()),
                .err = std::move(child.err()),
                .log = log(rank),
                .shown = rank == 0 ? StdStreams::both : StdStreams::nothing,
                .prefix = ""});
    }
    for (auto& child : children) {
      if (!child.wait().ok()) return 1;
    }
    pump.finish(test::kPatience);
    auto text = console_.text();
    const auto begin = text.find("launcher: cannot write '");
    if (begin == std::string::npos) return 2;
    const auto end = text.find('\n', begin) + 1;
    const auto sentence = text.substr(begin, end - begin);
    if (sentence.find("File too large; the ranks keep running") == std::string::npos)
      return 3;
    text.erase(begin, end - begin);
    if (text.find("launcher:") != std::string::npos) return 4;
    expect_all_chatter(text, 0, kBytes);
    return ::testing::Test::HasFailure() ? 5 : 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(size_of(log(0)), kDisk);
}

// The real streams: nobody reads them, and the pump ends all the same.
TEST_F(LogPumpTest, AStandardOutputThatNobodyReadsDoesNotHoldUpTheEnd) {
  const int status = test::in_child([&] {
    int ends[2];
    if (::pipe(ends) != 0 || ::dup2(ends[1], STDOUT_FILENO) < 0) return 1;
    {
      LogPump pump;
      auto child = start_chatter(0, 1 << 20);
      pump.add({.out = std::move(child.out()),
                .err = std::move(child.err()),
                .log = log(0),
                .shown = StdStreams::out,
                .prefix = ""});
      child.wait();
      pump.finish(std::chrono::milliseconds(50));
    }
    expect_all_chatter(test::read_file(log(0)), 0, 1 << 20);
    return ::testing::Test::HasFailure() ? 2 : 0;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(LogPumpTest, AClosedStandardOutputDoesNotKillTheLauncher) {
  const int status = test::in_child([&] {
    int ends[2];
    if (::pipe(ends) != 0 || ::dup2(ends[1], STDOUT_FILENO) < 0) return 1;
    ::close(ends[0]);
    ::close(ends[1]);
    ::signal(SIGPIPE, SIG_DFL);
    LogPump pump;
    auto child = start_chatter(0, 1 << 20);
    pump.add({.out = std::move(child.out()),
              .err = std::move(child.err()),
              .log = log(0),
              .shown = StdStreams::out,
              .prefix = ""});
    if (!child.wait().ok()) return 2;
    pump.finish(test::kPatience);
    expect_all_chatter(test::read_file(log(0)), 0, 1 << 20);
    return ::testing::Test::HasFailure() ? 3 : 0;
  });
  EXPECT_EQ(status, 0);
}

class RotatingFileTest : public ::testing::Test {
 protected:
  files::TemporaryDirectory folder_;
  files::Path path_ = folder_.path() / "log";
};

TEST_F(RotatingFileTest, IsCutAfterALineAndKeepsTheNewestFiles) {
  RotatingFile file(path_, {.rotate_bytes = 10, .keep = 2});
  EXPECT_TRUE(file.append("aaaa\nbbbb\ncccc\n"));
  EXPECT_EQ(test::read_file(path_), "cccc\n");
  EXPECT_EQ(test::read_file(path_.string() + ".1"), "aaaa\nbbbb\n");
  EXPECT_TRUE(file.append("dddd\neeee\nffff\ngggg\n"));
  EXPECT_THAT(test::names_in(folder_.path()), ElementsAre("log", "log.1", "log.2"));
  EXPECT_EQ(with_rotated(path_), "cccc\ndddd\neeee\nffff\ngggg\n");
}

TEST_F(RotatingFileTest, ALineThatIsLargerThanAFileHasOneOfItsOwn) {
  RotatingFile file(path_, {.rotate_bytes = 10, .keep = 5});
  EXPECT_TRUE(file.append("a\n" + std::string(25, 'b') + "\nc\n"));
  EXPECT_EQ(test::read_file(path_), "c\n");
  EXPECT_EQ(test::read_file(path_.string() + ".1"), std::string(25, 'b') + "\n");
}

TEST_F(RotatingFileTest, KeepsNothingIfAskedTo) {
  RotatingFile file(path_, {.rotate_bytes = 4, .keep = 0});
  EXPECT_TRUE(file.append("aaa\nbbb\nccc\n"));
  EXPECT_THAT(test::names_in(folder_.path()), ElementsAre("log"));
  EXPECT_EQ(test::read_file(path_), "ccc\n");
}

TEST_F(RotatingFileTest, GoesOnWithAnOldFileAndEndsItsTornLine) {
  test::write_file(path_, "old\nto");
  RotatingFile file(path_, {.rotate_bytes = 12, .keep = 1});
  EXPECT_TRUE(file.append("new\n"));
  EXPECT_EQ(test::read_file(path_), "old\nto\nnew\n");
  EXPECT_TRUE(file.append("more\n"));
  EXPECT_EQ(test::read_file(path_), "more\n");
}

TEST_F(RotatingFileTest, SaysHowMuchItLacks) {
  RotatingFile file(folder_.path() / "later" / "log",
                    {.rotate_bytes = 1000, .keep = 1});
  EXPECT_FALSE(file.append("0123456789\n"));
  EXPECT_EQ(file.problem(), "No such file or directory");
  EXPECT_FALSE(file.append("x\n"));
  std::filesystem::create_directory(folder_.path() / "later");
  EXPECT_TRUE(file.append("new\n"));
  EXPECT_EQ(test::read_file(folder_.path() / "later" / "log"),
            "lockstep: 13 bytes are missing here: No such file or directory\nnew\n");
}

// A file that can not be moved grows on: better than lost lines.
TEST_F(RotatingFileTest, WritesOnIfItCanNotBeMoved) {
  std::filesystem::create_directories(path_.string() + ".1/full");
  RotatingFile file(path_, {.rotate_bytes = 4, .keep = 1});
  EXPECT_TRUE(file.append("aaa\nbbb\nccc\n"));
  EXPECT_EQ(test::read_file(path_), "aaa\nbbb\nccc\n");
}

}  // namespace
}  // namespace lockstep
