#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lockstep {

using SteadyTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

// The source of time. Code that decides by time takes one, so that a test can own it.
class Clock {
 public:
  virtual ~Clock() = default;

  virtual SteadyTime now() const = 0;  // for durations: never goes back
  virtual WallTime wall() const = 0;   // for records: the time of day

  // Returns the system's clock.
  static const Clock& system();
};

// A clock that stands still until it is moved.
class ManualClock : public Clock {
 public:
  SteadyTime now() const override { return now_; }
  WallTime wall() const override { return wall_; }

  void advance(std::chrono::nanoseconds by) {
    now_ += std::chrono::duration_cast<SteadyTime::duration>(by);
    wall_ += std::chrono::duration_cast<WallTime::duration>(by);
  }

 private:
  SteadyTime now_{};
  WallTime wall_{std::chrono::seconds(1'700'000'000)};
};

double seconds_between(SteadyTime begin, SteadyTime end);

// Returns the seconds since 1970, with fractions.
double unix_seconds(WallTime time);

// Returns a text such as "2026-11-15T03:22:41.125Z".
std::string iso_time(WallTime time);

// Reads the text of iso_time(); empty if `text` is not in that form.
std::optional<WallTime> parse_iso_time(const std::string& text);

}  // namespace lockstep
