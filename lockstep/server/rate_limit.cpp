#include "lockstep/server/rate_limit.h"

#include <algorithm>

namespace lockstep::server {
namespace {

constexpr std::size_t kMostBuckets = 20'000;
constexpr double kSecondsPerMinute = 60;
constexpr double kShareAtOnce = 1.0 / 6;

}  // namespace

RateLimit::Bucket& RateLimit::filled(const std::string& key, double per_minute) {
  const auto now = clock_.now();
  const double most = std::max(1.0, per_minute * kShareAtOnce);
  if (buckets_.size() > kMostBuckets) {
    // Those that are full again are as good as new ones.
    std::erase_if(buckets_, [&](const auto& entry) {
      return seconds_between(entry.second.filled, now) > kSecondsPerMinute;
    });
    if (buckets_.size() > kMostBuckets) buckets_.clear();
  }
  auto [entry, is_new] = buckets_.try_emplace(key, Bucket{most, now});
  auto& bucket = entry->second;
  if (!is_new) {
    const double since = seconds_between(bucket.filled, now);
    bucket.tokens =
        std::min(most, bucket.tokens + since * per_minute / kSecondsPerMinute);
    bucket.filled = now;
  }
  return bucket;
}

bool RateLimit::take(const std::string& key, double per_minute) {
  const std::lock_guard lock(mutex_);
  auto& bucket = filled(key, per_minute);
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

bool RateLimit::would_pass(const std::string& key, double per_minute) {
  const std::lock_guard lock(mutex_);
  return filled(key, per_minute).tokens >= 1;
}

}  // namespace lockstep::server
