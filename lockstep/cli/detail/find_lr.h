#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cli/command.h"
#include "lockstep/jobs/trial.h"
#include "lockstep/monitor/metrics.h"

// `lockstep find-lr`: a sweep of learning rates, and its result.
namespace lockstep::cli {

struct LrRequest {
  std::int64_t steps = 100;
  double from = 1e-8;
  double to = 1;
  double diverged = 4;  // the sweep ends at so many times the best loss
};

LrRequest lr_request(const Arguments& arguments);

// Makes the recipe a sweep; returns the knobs that it changes. Throws Fault::config for
// one that was typed.
std::vector<planner::Choice> make_sweep(config::Loaded& wanted,
                                        const LrRequest& request);

struct LrPoint {
  std::int64_t step = 0;
  double lr = 0;
  double loss = 0;
  double smoothed = 0;
};

// Returns the steps up to the first whose loss is not a number.
std::vector<LrPoint> lr_points(const std::vector<monitor::Metrics>& metrics);

// The first steps say more of the smoothing than of the rate.
inline constexpr std::size_t kSkippedPoints = 10;

// Returns where the smoothed loss falls the most from one step to the next: rates grow
// by one factor, so that is along their logarithm. The first kSkippedPoints and the
// last are left out. Nothing if it falls nowhere, or there are too few.
std::optional<std::size_t> steepest(const std::vector<LrPoint>& points);

// Rounds to two digits: more says nothing.
double rounded_lr(double lr);

std::string lr_csv(const std::vector<LrPoint>& points);

struct LrFinding {
  std::vector<LrPoint> points;
  std::optional<std::size_t> best;  // in `points`
  double lr = 0;                    // the value for the recipe
  std::string directory;
};

std::string lr_text(const LrFinding& finding);
std::string lr_json(const LrFinding& finding);

}  // namespace lockstep::cli
