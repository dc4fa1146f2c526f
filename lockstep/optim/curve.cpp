#include "lockstep/optim/detail/curve.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::optim::detail {
namespace {

using config::Schedule;
using config::ScheduleConfig;

double number(std::int64_t count) {
  return static_cast<double>(count);
}

// Goes from `high` at done=0 to `low` at done=1, along half a cosine wave.
double along_cosine(double high, double low, double done) {
  return low + (high - low) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

// Rises until rise * length - 1, as PyTorch counts, then falls until length - 1.
double one_cycle(const ScheduleConfig& c, std::int64_t t, std::int64_t length) {
  const double top = std::max(c.rise * number(length) - 1, 0.0);
  const double last = std::max(number(length - 1), top + 1);
  if (number(t) <= top && top > 0) {
    return along_cosine(c.start_ratio, 1, number(t) / top);
  }
  return along_cosine(1, c.final_ratio,
                      std::min((number(t) - top) / (last - top), 1.0));
}

double drops(const ScheduleConfig& c, std::int64_t count) {
  return std::max(std::pow(c.gamma, number(count)), c.final_ratio);
}

double wsd(const ScheduleConfig& c, const CurvePoint& place) {
  const auto length = decay_length(c, place.end);
  const auto begin = place.end - length;
  if (place.now <= begin || length == 0) return 1;
  const double done = std::min(number(place.now - begin) / number(length), 1.0);
  return 1 - (1 - c.final_ratio) * done;
}

// Falls from 1 to final_ratio, by the remaining part of the way.
double falling(const ScheduleConfig& c, double left) {
  return c.final_ratio + (1 - c.final_ratio) * left;
}

}  // namespace

std::int64_t decay_length(const ScheduleConfig& config, std::int64_t end) {
  return std::llround(config.decay_share * number(end));
}

double curve(const ScheduleConfig& c, const CurvePoint& place) {
  const auto length = std::max<std::int64_t>(place.end - place.warmup, 1);
  const auto t = std::max<std::int64_t>(place.now - place.warmup, 0);
  const double done = std::min(number(t) / number(length), 1.0);
  switch (c.name) {
    case Schedule::constant:
    case Schedule::plateau:
      return 1;
    case Schedule::linear:
      return falling(c, 1 - done);
    case Schedule::cosine:
      return along_cosine(1, c.final_ratio, done);
    case Schedule::polynomial:
      return falling(c, std::pow(1 - done, c.power));
    case Schedule::step:
      return drops(c, place.now / c.step_size);
    case Schedule::multi_step:
      return drops(c, std::count_if(c.milestones.begin(), c.milestones.end(),
                                    [&](int at) { return at <= place.now; }));
    case Schedule::exponential:
      return drops(c, t);
    case Schedule::one_cycle:
      return one_cycle(c, t, length);
    case Schedule::inverse_sqrt: {
      const double scale = std::max(number(place.warmup), 1.0);
      return std::max(std::sqrt(scale / (scale + number(t))), c.final_ratio);
    }
    case Schedule::wsd:
      return wsd(c, place);
    case Schedule::sweep: {
      const double rest = length > 1 ? 1 - number(t) / number(length - 1) : 0.0;
      return std::pow(c.start_ratio, std::max(rest, 0.0));
    }
  }
  return 1;
}

}  // namespace lockstep::optim::detail
