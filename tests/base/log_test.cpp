#include "lockstep/base/log.h"

#include <thread>

#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using ::testing::MatchesRegex;
using ::testing::SizeIs;

// Takes the lines of this process while it lives.
class Captured {
 public:
  explicit Captured(log::Level level = log::Level::info, files::Path file = {}) {
    log::start({.level = level,
                .shown = level,
                .file = std::move(file),
                .writer = [this](log::Level at, std::string_view line) {
                  levels.push_back(at);
                  lines.emplace_back(line);
                }});
  }
  ~Captured() { log::start({}); }

  std::vector<std::string> lines;
  std::vector<log::Level> levels;
};

TEST(Log, ALineHasLevelTimeRankAndModule) {
  Captured captured;
  log::set_rank(2);
  log::info("comm", "joined 8 ranks");
  log::set_rank(-1);
  log::warning("data", "loader waited 180 ms");
  ASSERT_THAT(captured.lines, SizeIs(2));
  EXPECT_THAT(captured.lines[0],
              MatchesRegex("I [0-9:]+\\.[0-9]+ r2 comm     joined 8 ranks\n"));
  EXPECT_THAT(captured.lines[1],
              MatchesRegex("W [0-9:]+\\.[0-9]+ -- data     loader waited 180 ms\n"));
  EXPECT_THAT(captured.levels,
              ::testing::ElementsAre(log::Level::info, log::Level::warning));
}

TEST(Log, LinesBelowTheLevelAreLeftOut) {
  Captured captured(log::Level::warning);
  log::debug("x", "no");
  log::info("x", "no");
  log::error("x", "yes");
  EXPECT_THAT(captured.lines, SizeIs(1));
}

TEST(Log, TheFileKeepsWhatIsNotShown) {
  const files::TemporaryDirectory directory;
  const auto file = directory.path() / "log";
  std::vector<std::string> shown;
  log::start(
      {.level = log::Level::debug,
       .shown = log::Level::error,
       .file = file,
       .writer = [&](log::Level, std::string_view line) { shown.emplace_back(line); }});
  log::debug("x", "kept");
  log::error("x", "shown");
  log::start({});
  EXPECT_THAT(shown, SizeIs(1));
  EXPECT_THAT(test::read_file(file), ::testing::HasSubstr("kept"));
}

// A rank that learns later where it may write.
TEST(Log, AFileMayComeLaterWhileOthersLog) {
  const files::TemporaryDirectory directory;
  const auto file = directory.path() / "log";
  log::start({.file = {}, .writer = [](log::Level, std::string_view) {}});
  log::info("x", "before");
  {
    std::jthread other([](const std::stop_token& stop) {
      while (!stop.stop_requested()) log::info("x", "meanwhile");
    });
    log::start({.file = file, .writer = [](log::Level, std::string_view) {}});
  }
  log::info("x", "after");
  const auto kept = test::read_file(file);
  EXPECT_EQ(kept.find("before"), std::string::npos);
  EXPECT_NE(kept.find("after"), std::string::npos);
  log::start({});
}

TEST(Log, AFileThatCanNotBeOpenedIsAnIoFault) {
  EXPECT_THAT(test::error_text(Fault::io, [] { log::start({.file = "/proc/no/log"}); }),
              ::testing::HasSubstr("/proc/no/log"));
  log::start({});
}

TEST(Log, TheRankBelongsToTheThread) {
  Captured captured;
  std::thread([] {
    log::set_rank(5);
    log::info("x", "from a rank");
  }).join();
  log::info("x", "from the main thread");
  ASSERT_THAT(captured.lines, SizeIs(2));
  EXPECT_THAT(captured.lines[0], ::testing::HasSubstr(" r5 "));
  EXPECT_THAT(captured.lines[1], ::testing::HasSubstr(" -- "));
}

TEST(Log, BracesInASentenceAreNotAFormat) {
  Captured captured;
  log::info("x", "{} {0} %s");
  ASSERT_THAT(captured.lines, SizeIs(1));
  EXPECT_THAT(captured.lines[0], ::testing::HasSubstr("{} {0} %s"));
}

TEST(Log, TheFileGetsEveryLineAtOnce) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "rank_0.log";
  Captured captured(log::Level::debug, path);
  log::debug("x", "one");
  log::error("x", "two");
  const auto content = test::read_file(path);
  EXPECT_EQ(text::split(content, '\n').size(), 3U) << content;
  EXPECT_THAT(content, ::testing::HasSubstr("one"));
}

TEST(Log, WithoutAWriterLinesGoToStandardErrorOnly) {
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  log::start({});
  log::info("x", "hello");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), ::testing::HasSubstr("hello"));
}

}  // namespace
}  // namespace lockstep
