#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/service/attempt.h"
#include "lockstep/service/recent.h"

namespace lockstep::service {

// What runs have written, for many who ask at the same time: a file is read again when
// it has changed, and what a running one says of itself is at most a quarter of a
// second old. Keeps a few MB of those that were asked for last.
//
// Threads: any.
class RunCache {
 public:
  using Lines = std::shared_ptr<const std::vector<monitor::Metrics>>;

  struct Limits {
    std::size_t view_bytes = 8 << 20;
    std::size_t metrics_bytes = 16 << 20;  // of files; a few times that in memory
    std::size_t largest_file = 1 << 20;    // larger ones are read each time
  };

  RunCache(const Limits& limits, const Clock& clock);
  RunCache() : RunCache(Limits{}, Clock::system()) {}

  // Returns the run as clients may see it (JSON): without its place on this machine and
  // the words that started it. Returns "" if there is none yet.
  std::string view(const JobFolder& folder);

  // Returns all its metrics, each step once.
  Lines metrics(const JobFolder& folder);

  // Keeps nothing of a run that is removed.
  void forget(const JobFolder& folder);

  std::size_t kept_views() const;
  std::size_t kept_metrics() const;

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

  const Limits limits_;
  const Clock& clock_;
  mutable std::mutex mutex_;  // guards the rest
  Recent<files::Path, View> views_;
  Recent<files::Path, Metrics> metrics_;
};

}  // namespace lockstep::service
