#include "lockstep/generate/sampler.h"

#include <cmath>
#include <map>
#include <set>

#include <gtest/gtest.h>

namespace lockstep::generate {
namespace {

using Tokens = std::vector<std::int64_t>;

const std::vector<float> kLogits = {0.5F, 2.0F, -1.0F, 1.5F, 0.0F};

std::map<std::int64_t, int> drawn(const SamplerOptions& options, int times,
                                  const std::vector<float>& logits = kLogits) {
  TokenSampler sampler(options, 0);
  std::map<std::int64_t, int> counts;
  Tokens before;
  for (int i = 0; i < times; ++i) {
    before.push_back(4);
    ++counts[sampler.next(logits, before)];
  }
  return counts;
}

TEST(TokenSampler, WithoutTemperatureItIsTheLikeliest) {
  EXPECT_EQ(drawn({.temperature = 0}, 10), (std::map<std::int64_t, int>{{1, 10}}));
  EXPECT_EQ(drawn({.top_k = 1}, 10), (std::map<std::int64_t, int>{{1, 10}}));
}

TEST(TokenSampler, DrawsByTheSharesOfTheLogits) {
  constexpr int kTimes = 20'000;
  for (const double temperature : {0.5, 1.0, 2.0}) {
    double sum = 0;
    for (const auto logit : kLogits) sum += std::exp(logit / temperature);
    const auto counts = drawn({.temperature = temperature, .seed = 5}, kTimes);
    for (std::size_t i = 0; i < kLogits.size(); ++i) {
      const double share = std::exp(kLogits[i] / temperature) / sum;
      const double error = 5 * std::sqrt(share * (1 - share) / kTimes);
      const auto found = counts.find(static_cast<std::int64_t>(i));
      EXPECT_NEAR((found == counts.end() ? 0 : found->second) / double{kTimes}, share,
                  error)
          << i << " at " << temperature;
    }
  }
}

std::set<std::int64_t> tokens_of(const SamplerOptions& options) {
  std::set<std::int64_t> tokens;
  for (const auto& [token, count] : drawn(options, 2'000)) tokens.insert(token);
  return tokens;
}

TEST(TokenSampler, TopKAndTopPLeaveTheLikeliest) {
  EXPECT_EQ(tokens_of({.top_k = 2}), (std::set<std::int64_t>{1, 3}));
  // The shares are 0.11, 0.49, 0.02, 0.30 and 0.07.
  EXPECT_EQ(tokens_of({.top_p = 0.4}), (std::set<std::int64_t>{1}));
  EXPECT_EQ(tokens_of({.top_p = 0.5}), (std::set<std::int64_t>{1, 3}));
  EXPECT_EQ(tokens_of({.top_p = 0.85}), (std::set<std::int64_t>{0, 1, 3}));
  EXPECT_EQ(tokens_of({.top_k = 2, .top_p = 0.6}), (std::set<std::int64_t>{1}))
      << "of the two that are left, the first has 0.62";
}

TEST(TokenSampler, TokensThatWereThereBecomeLessLikely) {
  TokenSampler sampler({.temperature = 0, .repetition_penalty = 2}, 0);
  EXPECT_EQ(sampler.next(kLogits, Tokens{1}), 3) << "2.0 / 2 is less than 1.5";
  EXPECT_EQ(sampler.next(kLogits, Tokens{1, 1, 1}), 3) << "once, however often";
  const std::vector<float> negative = {-1.0F, -1.5F};
  EXPECT_EQ(sampler.next(negative, Tokens{0}), 1) << "-1.0 * 2 is less than -1.5";
}

TEST(TokenSampler, ASeedAndATextHaveTheirDraws) {
  const auto sequence = [](std::uint64_t seed, std::int64_t text) {
    TokenSampler sampler({.seed = seed}, text);
    Tokens tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler.next(kLogits, tokens));
    return tokens;
  };
  EXPECT_EQ(sequence(1, 0), sequence(1, 0));
  EXPECT_NE(sequence(1, 0), sequence(2, 0));
  EXPECT_NE(sequence(1, 0), sequence(1, 1));
}

}  // namespace
}  // namespace lockstep::generate
