#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/plan.h"
#include "lockstep/planner/report.h"

namespace lockstep::cli {
namespace {

std::string error_of(double predicted, double measured) {
  if (predicted <= 0 || measured <= 0) return "";
  return fmt::format("{:+.0f} %", 100 * run::prediction_error(predicted, measured));
}

}  // namespace

std::string comparison_text(const run::Comparison& c) {
  const auto bytes = [](double value) {
    return value > 0 ? units::format_bytes(static_cast<std::int64_t>(value))
                     : std::string("n/a");
  };
  const auto time = [](double value) {
    return value > 0 ? planner::seconds_text(value) : std::string("n/a");
  };
  return text::table(
      {{"", "predicted", "measured", "error"},
       {"memory of a rank", bytes(c.memory_predicted_bytes),
        bytes(c.memory_measured_bytes),
        error_of(c.memory_predicted_bytes, c.memory_measured_bytes)},
       {"time of a step", time(c.step_predicted_seconds), time(c.step_measured_seconds),
        c.is_busy() ? "(busy)"
                    : error_of(c.step_predicted_seconds, c.step_measured_seconds)}},
      {1, 2, 3});
}

}  // namespace lockstep::cli
