// `lockstep find-lr` without LibTorch: the sweep it plans, and what it makes of losses.
#include "lockstep/cli/detail/find_lr.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "lockstep/hardware/machine.h"
#include "tests/cli/rig.h"

namespace lockstep::cli {
namespace {

using ::testing::HasSubstr;

// Losses of a sweep from 1e-4 on, each rate twice the one before.
std::vector<monitor::Metrics> lines_of(const std::vector<double>& losses) {
  std::vector<monitor::Metrics> lines;
  double lr = 1e-4;
  for (const auto loss : losses) {
    lines.push_back({.step = static_cast<std::int64_t>(lines.size()) + 1,
                     .split = monitor::Split::train,
                     .loss = loss,
                     .more = {{"lr", lr}}});
    lr *= 2;
  }
  return lines;
}

// Flat at 2, but for one fall of 1 after `flat` steps.
std::vector<double> fall_after(std::size_t flat, std::size_t steps) {
  std::vector<double> losses(steps, 1.0);
  std::fill(losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(flat), 2.0);
  return losses;
}

TEST(FindLr, SuggestsTheRateAtWhichTheLossFallsTheFastest) {
  const auto points = lr_points(lines_of(fall_after(20, 40)));
  ASSERT_EQ(points.size(), 40U);
  const auto best = steepest(points);
  ASSERT_TRUE(best);
  // Smoothed, it falls the most at the first of the lower losses.
  EXPECT_NEAR(static_cast<double>(*best), 20, 1) << "a mean of two neighbours";
}

TEST(FindLr, LeavesOutTheFirstTen) {
  const auto points = lr_points(lines_of(fall_after(3, 40)));
  const auto best = steepest(points);
  ASSERT_TRUE(best) << "the smoothed loss still falls";
  EXPECT_EQ(*best, kSkippedPoints);
}

TEST(FindLr, SuggestsNothingWhereNothingFalls) {
  EXPECT_FALSE(steepest({}));
  EXPECT_FALSE(steepest(lr_points(lines_of(std::vector<double>(40, 2.0)))));
  EXPECT_FALSE(steepest(lr_points(lines_of(fall_after(5, 11))))) << "too few";
  LrFinding finding{.points = lr_points(lines_of({2, 2, 2}))};
  EXPECT_THAT(lr_text(finding), HasSubstr("no suggestion: the loss never falls"));
  EXPECT_TRUE(nlohmann::json::parse(lr_json(finding))["suggestion"].is_null());
}

TEST(FindLr, ALossThatIsNoNumberEndsTheSweep) {
  auto losses = fall_after(20, 40);
  losses[30] = std::nan("");
  EXPECT_EQ(lr_points(lines_of(losses)).size(), 30U);
}

// PyTorch Lightning's rule: a mean that forgets by 0.98, its start taken out.
TEST(FindLr, SmoothsTheLoss) {
  const auto points = lr_points(lines_of({4, 1, 1}));
  EXPECT_DOUBLE_EQ(points[0].smoothed, 4);
  EXPECT_NEAR(points[1].smoothed, (0.98 * 0.02 * 4 + 0.02) / (1 - 0.98 * 0.98),
              1e-14);  // rounding
}

TEST(FindLr, RoundsToTwoDigits) {
  EXPECT_EQ(rounded_lr(0.0031622), 0.0032);
  EXPECT_EQ(rounded_lr(0.00998), 0.01);
  EXPECT_EQ(rounded_lr(1.24e-7), 1.2e-7);
  EXPECT_EQ(rounded_lr(12.6), 13);
}

TEST(FindLr, ShowsAChartAndTheLineForTheRecipe) {
  auto losses = fall_after(20, 40);
  losses.back() = 1e6;  // run away: it must not flatten the rest
  LrFinding finding{.points = lr_points(lines_of(losses)), .best = 20, .lr = 0.0032};
  const auto text = lr_text(finding);
  EXPECT_THAT(text, HasSubstr("suggestion: 0.0032"));
  EXPECT_THAT(text, HasSubstr("  optim:\n    lr: 0.0032\n"));
  EXPECT_THAT(text, HasSubstr("        3 |")) << "1.5 times the first loss is the top";
  EXPECT_EQ(std::count(text.begin(), text.end(), '^'), 1);
  EXPECT_THAT(lr_csv(finding.points), ::testing::StartsWith("step,lr,loss,smoothed\n"
                                                            "1,0.0001,2,2\n"));
}

LrRequest sweep_of(const std::vector<std::string>& words) {
  auto all = words;
  all.insert(all.begin(), "recipe.yaml");
  return lr_request(parse(find_lr_command(), all));
}

TEST(FindLr, IsARunOfItsOwnThatKeepsNoWeights) {
  auto wanted = config::defaults({}, {});
  config::set(wanted, {"schedule.name", "cosine"}, {config::Origin::recipe, "x.yaml"});
  config::set(wanted, {"schedule.warmup_steps", "500"},
              {config::Origin::recipe, "x.yaml"});
  make_sweep(wanted, sweep_of({"--from", "1e-6", "--to", "0.1", "--steps", "50"}));
  hardware::Machine machine;
  const auto config = planner::resolve(wanted, machine).config.config;
  EXPECT_EQ(config.schedule.name, config::Schedule::sweep);
  EXPECT_EQ(config.schedule.warmup_steps, 0);
  EXPECT_EQ(config.optim.lr, 0.1);
  EXPECT_NEAR(config.schedule.start_ratio, 1e-5, 1e-20);  // rounding
  EXPECT_EQ(config.train.steps.value(), 50);
  EXPECT_EQ(config.train.log_every, 1);
  EXPECT_EQ(config.early_stop.divergence, 4);
  EXPECT_FALSE(config.checkpoint.final_weights);
}

TEST(FindLr, RefusesWhatIsNoSweep) {
  const auto refused = [](const std::vector<std::string>& words) {
    return test::error_text(Fault::config, [&] { sweep_of(words); });
  };
  EXPECT_THAT(refused({"--from", "0"}),
              HasSubstr("--from: '0' is not a learning rate"));
  EXPECT_THAT(refused({"--to", "inf"}), HasSubstr("--to: 'inf'"));
  EXPECT_THAT(refused({"--from", "1", "--to", "1"}), HasSubstr("is not below --to 1"));
  EXPECT_THAT(refused({"--steps", "12"}), HasSubstr("take at least 15"));
  auto wanted = config::defaults({{{"optim.lr", "0.5"}}}, {});
  EXPECT_THAT(test::error_text(Fault::config, [&] { make_sweep(wanted, {}); }),
              HasSubstr("find-lr: optim.lr=0.5: here it is 1"));
  EXPECT_THAT(test::lockstep_in_process({"train", "x.yaml", "--find-lr"}).err,
              HasSubstr("--find-lr is a command of its own: lockstep find-lr RECIPE"));
}

}  // namespace
}  // namespace lockstep::cli
