#include "lockstep/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"

namespace lockstep::generate {

TokenSampler::TokenSampler(const SamplerOptions& options, std::int64_t text)
    : options_(options),
      key_(scramble(scramble(options.seed) ^ static_cast<std::uint64_t>(text))) {}

double TokenSampler::draw(std::uint64_t place) const {
  // The upper 53 bits are a double in [0, 1), every value as likely.
  return static_cast<double>(scramble(key_ ^ place) >> 11) * 0x1.0p-53;
}

std::int64_t TokenSampler::next(std::span<const float> logits,
                                std::span<const std::int64_t> before) {
  LOCKSTEP_CHECK(!logits.empty());
  scores_.assign(logits.begin(), logits.end());
  if (options_.repetition_penalty != 1) {
    const auto penalty = static_cast<float>(options_.repetition_penalty);
    for (const auto token : before) {
      // Each only once: the original is looked up, not what is penalised already.
      const auto logit = logits[static_cast<std::size_t>(token)];
      scores_[static_cast<std::size_t>(token)] =
          logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  const auto best = std::max_element(scores_.begin(), scores_.end()) - scores_.begin();
  if (options_.temperature == 0 || options_.top_k == 1) return best;

  order_.resize(scores_.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto more = [&](std::int64_t a, std::int64_t b) {
    const auto x = scores_[static_cast<std::size_t>(a)];
    const auto y = scores_[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);  // the same order everywhere
  };
  auto count = order_.size();
  if (options_.top_k > 0) {
    count = std::min(count, static_cast<std::size_t>(options_.top_k));
    std::partial_sort(order_.begin(),
                      order_.begin() + static_cast<std::ptrdiff_t>(count), order_.end(),
                      more);
  } else if (options_.top_p < 1) {
    std::sort(order_.begin(), order_.end(), more);
  }
  const double highest = scores_[static_cast<std::size_t>(best)];
  std::vector<double> shares(count);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double score = scores_[static_cast<std::size_t>(order_[i])];
    shares[i] = std::exp((score - highest) / options_.temperature);
    sum += shares[i];
  }
  if (options_.top_p < 1) {
    double kept = 0;
    std::size_t i = 0;
    // The one that reaches the share stays.
    while (i < count && kept < options_.top_p * sum) kept += shares[i++];
    count = std::max<std::size_t>(i, 1);
    sum = kept;
  }
  const double wanted = draw(before.size()) * sum;
  double passed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    passed += shares[i];
    if (wanted < passed) return order_[i];
  }
  return order_[count - 1];  // by rounding only
}

}  // namespace lockstep::generate
