#include "lockstep/monitor/metrics.h"

#include <bit>
#include <cmath>
#include <limits>

#include "lockstep/base/text.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using monitor::Metrics;
using monitor::MetricsWriter;
using monitor::Split;

TEST(Metrics, ALineHasStepSplitLossAndTimeInThisOrder) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics.jsonl";
  ManualClock clock;
  MetricsWriter writer(path, clock);
  writer.write({.step = 50,
                .split = Split::train,
                .loss = 0.5,
                .more = {{"epoch", std::int64_t{1}}, {"lr", 1e-3}, {"final", false}}});
  EXPECT_EQ(test::read_file(path),
            "{\"step\":50,\"split\":\"train\",\"loss\":0.5,\"time\":1700000000.0,"
            "\"epoch\":1,\"lr\":0.001,\"final\":false}\n");
}

TEST(Metrics, ALineSaysWhichAttemptOfTheRunWroteIt) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics.jsonl";
  ManualClock clock;
  MetricsWriter(path, clock).write({.step = 7, .loss = 1, .more = {}, .attempt = 3});
  EXPECT_EQ(test::read_file(path),
            "{\"step\":7,\"split\":\"train\",\"loss\":1.0,\"time\":1700000000.0,"
            "\"attempt\":3}\n");
  EXPECT_EQ(monitor::read_metrics(path).at(0).attempt, 3);
}

// A line of a run that was started again.
Metrics line_of(std::int64_t attempt, std::int64_t step, Split split = Split::train) {
  return {.step = step,
          .split = split,
          .loss = static_cast<double>(100 * attempt + step),
          .more = {},
          .attempt = attempt};
}

std::vector<double> losses_of(const std::vector<Metrics>& lines) {
  std::vector<double> losses;
  for (const auto& line : lines) losses.push_back(line.loss);
  return losses;
}

TEST(Metrics, AfterARestartEachStepIsReadOnceAsTheLastAttemptMadeIt) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics.jsonl";
  {
    MetricsWriter writer(path);
    for (const auto& line :
         {line_of(1, 1), line_of(1, 2), line_of(1, 2, Split::eval), line_of(1, 3),
          line_of(1, 4), line_of(1, 4, Split::eval), line_of(1, 5),
          // From a checkpoint of step 2.
          line_of(2, 3), line_of(2, 4), line_of(2, 4, Split::eval),
          // And once more: step 4 has not been reached yet.
          line_of(3, 3)}) {
      writer.write(line);
    }
  }
  EXPECT_THAT(losses_of(monitor::read_metrics(path)),
              ::testing::ElementsAre(101, 102, 102, 303));
  EXPECT_EQ(monitor::recent_metrics(path).size(), 4U);
  EXPECT_EQ(monitor::last_metrics(path, Split::eval)->step, 2)
      << "not one of a past that did not happen";
  EXPECT_EQ(monitor::last_metrics(path, Split::train)->loss, 303);
}

TEST(Metrics, AnEvaluationThatWasLeftToTheNextAttemptKeepsItsStep) {
  const auto lines = monitor::each_step_once(
      {line_of(1, 1), line_of(1, 2), line_of(2, 2, Split::eval), line_of(2, 3)});
  EXPECT_THAT(losses_of(lines), ::testing::ElementsAre(101, 102, 202, 203));
}

TEST(Metrics, OfAFileWithoutAttemptsTheStepsTellThemApart) {
  auto lines = std::vector{line_of(0, 1), line_of(0, 5), line_of(0, 6)};
  lines.push_back(line_of(0, 5));
  lines.back().loss = 55;
  EXPECT_THAT(losses_of(monitor::each_step_once(lines)), ::testing::ElementsAre(1, 55));
}

TEST(Metrics, NumbersReadBackToTheSameBits) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics.jsonl";
  const std::vector<double> values{0.1,
                                   1.0 / 3.0,
                                   static_cast<double>(0.1F),
                                   -0.0,
                                   5e-324,
                                   1.7976931348623157e308,
                                   2.0,
                                   1e22,
                                   std::nextafter(2.302585, 3.0),
                                   std::numeric_limits<double>::infinity(),
                                   -std::numeric_limits<double>::infinity()};
  {
    MetricsWriter writer(path);
    for (const double value : values) {
      writer.write({.step = 1, .loss = value, .more = {{"x", value}}});
    }
    writer.sync();
  }
  const auto lines = monitor::read_metrics(path);
  ASSERT_EQ(lines.size(), values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<std::uint64_t>(values[i]);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(lines[i].loss), bits) << values[i];
    const auto field = lines[i].find("x");
    ASSERT_TRUE(field);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(*field), bits) << values[i];
  }
}

TEST(Metrics, NanIsATextThatReadsBackAsNan) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics.jsonl";
  MetricsWriter(path).write(
      {.step = 1, .loss = std::numeric_limits<double>::quiet_NaN(), .more = {}});
  EXPECT_THAT(test::read_file(path), ::testing::HasSubstr("\"loss\":\"NaN\""));
  const auto lines = monitor::read_metrics(path);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(std::isnan(lines[0].loss));
}

TEST(Metrics, LargeIntegersAreExact) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics.jsonl";
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  MetricsWriter(path).write({.step = large, .loss = 1, .more = {{"n", large}}});
  const auto lines = monitor::read_metrics(path);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].step, large);
  EXPECT_EQ(std::get<std::int64_t>(lines[0].more[0].value), large);
}

TEST(Metrics, TheLastLineOfASplitIsFoundBehindATornOne) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics.jsonl";
  EXPECT_EQ(monitor::last_metrics(path, Split::train), std::nullopt);
  {
    MetricsWriter writer(path);
    writer.write({.step = 1, .loss = 3, .more = {}});
    writer.write(
        {.step = 2, .split = Split::eval, .loss = 2, .more = {{"accuracy", 0.9}}});
    writer.write({.step = 3, .loss = 1, .more = {}});
  }
  test::write_file(path, test::read_file(path) + "{\"step\":4,\"split\":\"tr");
  const auto train = monitor::last_metrics(path, Split::train);
  const auto eval = monitor::last_metrics(path, Split::eval);
  ASSERT_TRUE(train && eval);
  EXPECT_EQ(train->step, 3);
  EXPECT_EQ(eval->step, 2);
  EXPECT_EQ(eval->find("accuracy"), 0.9);
  EXPECT_EQ(eval->find("nothing"), std::nullopt);
  EXPECT_EQ(monitor::read_metrics(path).size(), 3U);
}

TEST(Metrics, ALineThatIsNoMetricsIsLeftOut) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics.jsonl";
  test::write_file(path,
                   "[]\n\n{}\n{\"step\":1,\"split\":\"x\",\"loss\":1}\n"
                   "{\"step\":1.5,\"split\":\"eval\",\"loss\":1}\n"
                   "{\"step\":1,\"split\":\"eval\",\"loss\":\"much\"}\n");
  EXPECT_TRUE(monitor::read_metrics(path).empty());
}

TEST(Metrics, AWriterAfterACrashStartsOnANewLine) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics.jsonl";
  test::write_file(path, "{\"step\":1,\"spl");
  MetricsWriter(path).write({.step = 2, .loss = 1, .more = {}});
  const auto lines = monitor::read_metrics(path);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].step, 2);
}

TEST(Metrics, AFullDiskIsAnErrorThatNamesTheFile) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "metrics.jsonl";
  const int status = test::in_child([&] {
    test::limit_file_size(10);
    const auto error = test::error_of(
        [&] { MetricsWriter(path).write({.step = 1, .loss = 1, .more = {}}); });
    if (!error) return 1;
    return std::string(error->what()).find("metrics.jsonl") == std::string::npos ? 2
                                                                                 : 0;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep
