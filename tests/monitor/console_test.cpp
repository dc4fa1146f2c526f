#include "lockstep/monitor/console.h"

#include "tests/support/support.h"

namespace lockstep::monitor {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

// A console whose output is kept and whose time stands still.
struct Screen {
  explicit Screen(bool live, bool color = false)
      : console({.live = live,
                 .color = color,
                 .columns = [this] { return columns; },
                 .write = [this](std::string_view text) { output += text; }},
                clock) {}

  int columns = 200;
  std::string output;
  ManualClock clock;
  Console console;
};

ProgressLine at_step(std::int64_t step) {
  return {.step = step,
          .total_steps = 200,
          .loss = 0.41234,
          .metrics = "accuracy 84.91 %",
          .lr = 1e-3,
          .samples_per_second = 2410,
          .memory_bytes = 512 << 20};
}

std::size_t count_of(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(Console, TheLineSaysWhatAPersonWantsToKnow) {
  EXPECT_EQ(
      progress_text(at_step(50), std::chrono::seconds(12)),
      "step 50/200  25 %  00:12<00:36  loss 0.4123  accuracy 84.91 %  lr 1.00e-03  "
      "2,410 samples/s  512.0 MiB");
  EXPECT_THAT(progress_text({.step = 0, .total_steps = 200}, std::chrono::seconds(1)),
              HasSubstr("00:01<?"));
}

TEST(Console, RedrawsAtMostTenTimesASecond) {
  Screen screen(/*live=*/true);
  for (int i = 1; i <= 100; ++i) {  // one second of steps
    screen.console.progress(at_step(i));
    screen.clock.advance(milliseconds(10));
  }
  EXPECT_EQ(count_of(screen.output, "step "), 10u);
}

TEST(Console, ALineGoesAboveTheLiveLine) {
  Screen screen(/*live=*/true);
  screen.console.progress(at_step(1));
  screen.output.clear();
  screen.console.print("something happened\n");
  EXPECT_THAT(screen.output,
              testing::StartsWith("\r\x1b[2Ksomething happened\n\r\x1b[2Kstep 1/"));
}

TEST(Console, TheLastStateStaysOnTheScreen) {
  Screen screen(/*live=*/true);
  screen.console.progress(at_step(199));
  screen.console.progress(at_step(200));  // too soon to be drawn
  EXPECT_THAT(screen.output, Not(HasSubstr("step 200/")));
  screen.console.finish();
  EXPECT_THAT(screen.output, HasSubstr("step 200/200"));
  EXPECT_EQ(screen.output.back(), '\n');
  const auto before = screen.output;
  screen.console.finish();
  EXPECT_EQ(screen.output, before);
}

TEST(Console, TheLiveLineMovesOnBetweenReports) {
  Screen screen(/*live=*/true);
  screen.console.progress(at_step(50));
  screen.clock.advance(milliseconds(200));
  screen.console.tick(51);
  EXPECT_THAT(screen.output, HasSubstr("step 51/200"));
  Screen plain(/*live=*/false);
  plain.console.progress(at_step(50));
  plain.clock.advance(std::chrono::seconds(10));
  plain.console.tick(51);
  EXPECT_THAT(plain.output, Not(HasSubstr("step 51/")));
}

// A line that wraps could not be erased; the terminal may be resized at any time.
TEST(Console, TheLiveLineFitsTheTerminal) {
  Screen screen(/*live=*/true);
  screen.columns = 20;
  screen.console.progress(at_step(1));
  EXPECT_EQ(screen.output, "\r\x1b[2Kstep 1/200  0 %  00");
}

TEST(Console, WithoutATerminalPlainLinesNowAndThen) {
  Screen screen(/*live=*/false);
  for (int i = 1; i <= 100; ++i) {
    screen.console.progress(at_step(i));
    screen.clock.advance(milliseconds(100));
  }
  screen.console.finish();
  EXPECT_THAT(screen.output, Not(HasSubstr("\x1b")));
  EXPECT_THAT(screen.output, Not(HasSubstr("\r")));
  // At 0 s, 5 s and the end.
  EXPECT_EQ(count_of(screen.output, "\n"), 3u);
  EXPECT_THAT(screen.output, HasSubstr("step 100/200"));
}

TEST(Console, ColoursLevelsOnlyWhereColourIsWanted) {
  Screen plain(/*live=*/false);
  plain.console.log_line(log::Level::error, "E broken\n");
  EXPECT_EQ(plain.output, "E broken\n");
  Screen coloured(/*live=*/false, /*color=*/true);
  coloured.console.log_line(log::Level::error, "E broken\n");
  EXPECT_EQ(coloured.output, "\x1b[31mE broken\x1b[0m\n");
  coloured.output.clear();
  coloured.console.log_line(log::Level::info, "I fine\n");
  EXPECT_EQ(coloured.output, "I fine\n");
}

}  // namespace
}  // namespace lockstep::monitor
