#include "lockstep/base/clock.h"

#include <cstdio>
#include <ctime>

#include <fmt/chrono.h>

namespace lockstep {
namespace {

class SystemClock : public Clock {
 public:
  SteadyTime now() const override { return std::chrono::steady_clock::now(); }
  WallTime wall() const override { return std::chrono::system_clock::now(); }
};

}  // namespace

const Clock& Clock::system() {
  static const SystemClock clock;
  return clock;
}

double seconds_between(SteadyTime begin, SteadyTime end) {
  return std::chrono::duration<double>(end - begin).count();
}

double unix_seconds(WallTime time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

std::string iso_time(WallTime time) {
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(ms);
  return fmt::format("{:%FT%T}.{:03}Z",
                     fmt::gmtime(static_cast<std::time_t>(seconds.count())),
                     (ms - seconds).count());
}

std::optional<WallTime> parse_iso_time(const std::string& text) {
  std::tm parts{};
  int ms = 0;
  char zone = 0, after = 0;
  const int found = std::sscanf(
      text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3d%c%c", &parts.tm_year, &parts.tm_mon,
      &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &ms, &zone, &after);
  if (found != 8 || zone != 'Z') return std::nullopt;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return std::chrono::system_clock::from_time_t(::timegm(&parts)) +
         std::chrono::milliseconds(ms);
}

}  // namespace lockstep
