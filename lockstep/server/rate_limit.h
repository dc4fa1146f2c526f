#pragma once

#include <map>
#include <mutex>
#include <string>

#include "lockstep/base/clock.h"

namespace lockstep::server {

// So many a minute for each key, evenly: a bucket that fills again all the time. A
// sixth of a minute's may come at once.
//
// Threads: any.
class RateLimit {
 public:
  explicit RateLimit(const Clock& clock = Clock::system()) : clock_(clock) {}

  // Returns whether one more may pass, and counts it.
  bool take(const std::string& key, double per_minute);

  // Returns the same without counting.
  bool would_pass(const std::string& key, double per_minute);

 private:
  struct Bucket {
    double tokens = 0;
    SteadyTime filled{};
  };

  Bucket& filled(const std::string& key, double per_minute);

  const Clock& clock_;
  std::mutex mutex_;  // guards the rest
  std::map<std::string, Bucket> buckets_;
};

}  // namespace lockstep::server
