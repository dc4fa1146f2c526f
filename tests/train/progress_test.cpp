#include "lockstep/train/progress.h"

#include "tests/comm/ranks.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using test::SmallImages;
using ::testing::HasSubstr;

RankWindow window(double data_wait, double compute) {
  return {.data_wait_seconds = data_wait, .compute_seconds = compute};
}

TEST(Straggler, IsTheRankWhoseGradientsCameLast) {
  const auto found = find_straggler({window(0, 1), window(0, 3), window(0, 2)});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, 1);
  EXPECT_DOUBLE_EQ(found->late_seconds, 1.5);  // 3 against the mean of 1 and 2
  EXPECT_EQ(found->cause, "compute");
}

TEST(Straggler, MayHaveWaitedForItsData) {
  const auto found = find_straggler({window(0, 2), window(4, 1)});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, 1);
  EXPECT_DOUBLE_EQ(found->late_seconds, 3);
  EXPECT_EQ(found->cause, "data wait");
}

TEST(Straggler, OneRankHasNobodyWaitingForIt) {
  EXPECT_FALSE(find_straggler({window(1, 1)}).has_value());
}

TEST(Window, IsGatheredFromEveryRank) {
  auto worlds = comm::join_threads({torch::kCPU, torch::kCPU, torch::kCPU}, {});
  test::as_threads(3, [&](int rank) {
    RankWindow own{.data_wait_seconds = 0.5 * rank,
                   .compute_seconds = 2.0 * rank,
                   .exchange_wait_seconds = 0.25,
                   .samples = rank,
                   .memory = {rank + 1, (1LL << 40) + rank, 7}};
    const auto all = gather(own, worlds[static_cast<std::size_t>(rank)].cpu());
    ASSERT_EQ(all.size(), 3U);
    EXPECT_EQ(all[2].samples, 2);
    EXPECT_EQ(all[2].compute_seconds, 4);
    EXPECT_EQ(all[1].data_wait_seconds, 0.5);
    EXPECT_EQ(all[1].memory.reserved_bytes, (1LL << 40) + 1);
  });
}

// Ranks that say how long they took, without taking that long.
class ProgressTest : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;
  static constexpr int kSteps = 5;

  // `ready` by rank; returns the shares of the batches that come later.
  std::vector<std::int64_t> shares_after(const std::vector<double>& ready) {
    std::vector<std::int64_t> shares(kRanks);
    const auto errors = test::as_threads(kRanks, [&](int rank) {
      const auto at = static_cast<std::size_t>(rank);
      data::Loader loader(data_, {.batch = 40, .rank = rank, .ranks = kRanks});
      monitor::Console console({.write = [](std::string_view) {}});
      Reporter reporter({run_, console}, config_.monitor,
                        {.rank = rank, .ranks = kRanks});
      Progress progress(
          {config_.watch, config_.parallel, worlds_[at], reporter, loader});
      progress.start(Clock::system().now());
      task::Tally tally(test::task_for(data_.spec()), torch::kCPU);
      for (int i = 0; i < kSteps; ++i) {
        progress.step(*loader.next(), &times(ready[at]));
        if (report_each_step_ || i + 1 == kSteps) {
          progress.report({.step = i + 1, .total_steps = 100}, tally);
        }
      }
      for (std::int64_t i = 0; i < loader.prefetch_depth(); ++i) loader.next();
      shares[at] = loader.next()->size;
    });
    for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
    return shares;
  }

  std::vector<run::Event> events(std::string_view kind) const {
    std::vector<run::Event> found;
    for (auto& event : run::last_events(run_.events(), 100)) {
      if (event.kind == kind) found.push_back(event);
    }
    return found;
  }

  config::Config config_ = [] {
    auto config = test::small_config();
    config.parallel.balance = true;
    return config;
  }();
  bool report_each_step_ = false;
  files::TemporaryDirectory folder_;
  run::RunDirectory run_ =
      run::RunDirectory::create(folder_.path() / "runs", {.name = "r"});

 private:
  static const parallel::ExchangeTimes& times(double ready) {
    thread_local parallel::ExchangeTimes own;
    own.last_ready = ready;
    return own;
  }

  const SmallImages data_{1000};
  std::vector<comm::World> worlds_ = comm::join_threads({torch::kCPU, torch::kCPU}, {});
};

TEST_F(ProgressTest, AFasterRankGetsMoreOfTheBatch) {
  EXPECT_EQ(shares_after({3.0, 1.0}), (std::vector<std::int64_t>{10, 30}));
  ASSERT_EQ(events("balance").size(), 1U);
}

TEST_F(ProgressTest, SharesStayWithoutTheKnob) {
  config_.parallel.balance = false;
  EXPECT_EQ(shares_after({3.0, 1.0}), (std::vector<std::int64_t>{20, 20}));
}

TEST_F(ProgressTest, TheRankThatTheOthersWaitForIsNamed) {
  shares_after({1.0, 3.0});
  const auto found = events("straggler");
  ASSERT_EQ(found.size(), 1U);
  const auto line = run::to_json_line(found[0].fields);
  EXPECT_THAT(line, HasSubstr("\"rank\":1"));
  EXPECT_THAT(line, HasSubstr("\"cause\":\"compute\""));
  const auto metrics = monitor::read_metrics(run_.metrics());
  ASSERT_EQ(metrics.size(), 1U);
  EXPECT_EQ(metrics[0].find("straggler_rank"), 1);
  // Five steps, two seconds each, and what the loaders really took for these batches.
  EXPECT_NEAR(metrics[0].find("straggler_seconds").value(), 10, 1);
}

// With train.log_every=1 no report is long enough to say anything.
TEST_F(ProgressTest, ShortReportsAreJudgedTogether) {
  report_each_step_ = true;
  EXPECT_EQ(shares_after({3.0, 1.0}), (std::vector<std::int64_t>{10, 30}));
  EXPECT_EQ(events("balance").size(), 1U);
  EXPECT_EQ(events("straggler").size(), 1U);
}

TEST_F(ProgressTest, NobodyIsNamedBelowTheThreshold) {
  config_.watch.straggler = 1;
  shares_after({0.001, 0.001});
  EXPECT_TRUE(events("straggler").empty());
}

}  // namespace
}  // namespace lockstep::train
