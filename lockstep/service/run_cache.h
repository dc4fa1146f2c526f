#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/service/attempt.h"

namespace lockstep::service {

// What runs have written, for many who ask at the same time: a file is read again when
// it has changed, and what a running one says of itself is at most a quarter of a
// second old.
//
// Threads: any.
class RunCache {
 public:
  using Lines = std::shared_ptr<const std::vector<monitor::Metrics>>;

  explicit RunCache(const Clock& clock = Clock::system()) : clock_(clock) {}

  // Returns the run as jobs::to_json() has it; "" if there is none yet.
  std::string view(const JobFolder& folder);

  // Returns all its metrics, each step once.
  Lines metrics(const JobFolder& folder);

 private:
  // When a file was written last, and how much of it there is.
  struct Stamp {
    std::int64_t file = 0;
    std::int64_t bytes = 0;
    std::int64_t changed = 0;

    bool operator==(const Stamp&) const = default;
  };
  struct View {
    Stamp record;
    SteadyTime read{};
    std::string json;
  };
  struct Metrics {
    Stamp stamp;
    Lines lines;
  };

  static Stamp stamp_of(const files::Path& file);

  const Clock& clock_;
  std::mutex mutex_;  // guards the rest
  std::map<files::Path, View> views_;
  std::map<files::Path, Metrics> metrics_;
};

}  // namespace lockstep::service
