// How long the loader threads of a rank take, and how many there should be.
#include <algorithm>
#include <cmath>

#include "lockstep/base/str.h"
#include "lockstep/planner/detail/search.h"

namespace lockstep::planner {
namespace {

// Seen on a core: 717 to 752 JPEGs a second, decoded and resized to 224 x 224 pixels.
constexpr double kImageSeconds = 1.4e-3;
constexpr double kImageBytes = 3 * 224 * 224;
constexpr double kLeastImageSeconds = 0.1e-3;
// Bytes a second and thread: small images with crop and flip, and copies alone.
constexpr double kAugmented = 0.8e9;
constexpr double kCopied = 2e9;

int most_workers(const CostInputs& inputs, int ranks) {
  const int logical = std::max(1, inputs.machine.logical_cores);
  return std::max(1, logical / ranks - 1);  // one is left to the training loop
}

}  // namespace

double load_seconds(const CostInputs& inputs) {
  const auto bytes = static_cast<double>(inputs.model.sample_bytes);
  const auto& name = inputs.config.data.name;
  if (name == "synthetic" || inputs.model.sequence > 0) return bytes / kCopied;
  if (inputs.model.load_seconds > 0) return inputs.model.load_seconds;
  if (name == "image_folder") {
    return std::max(kLeastImageSeconds, kImageSeconds * bytes / kImageBytes);
  }
  return bytes / kAugmented;
}

LoaderWorkers loader_workers(const CostInputs& inputs, const Candidate& candidate,
                             double step_seconds) {
  const auto& knob = inputs.config.data.workers;
  if (!knob.is_auto()) return {knob.value(), "data.workers is set"};
  constexpr int kUsual = 3;
  constexpr double kSpare = 1.25;  // batches are not equally slow
  const int most = most_workers(inputs, candidate.ranks);
  const int usual = std::min(kUsual, most);
  const auto share = static_cast<double>(candidate.micro * candidate.accumulation);
  const double one = load_seconds(inputs) * share;
  const double needed = step_seconds > 0 ? std::ceil(kSpare * one / step_seconds) : 0;
  const auto each = candidate.ranks > 1 ? " on each rank" : "";
  if (needed <= usual) {
    return {usual, str("enough to hide data loading behind the step", each)};
  }
  const int count = static_cast<int>(std::min<double>(needed, most));
  return {count,
          str(needed <= most ? "hides the loading of " : "all cores for loading ",
              share, " samples a step", each, ", ",
              std::round(1e4 * load_seconds(inputs)) / 10, " ms each")};
}

namespace detail {

void add_loading(const CostInputs& inputs, const Candidate& candidate, TimeCost& cost) {
  const double step = cost.step();
  cost.workers = loader_workers(inputs, candidate, step).count;
  // More threads than cores load no faster.
  const double cores =
      static_cast<double>(std::max(1, inputs.machine.logical_cores)) / candidate.ranks;
  const double threads = std::min<double>(cost.workers, cores);
  const auto share = static_cast<double>(candidate.micro * candidate.accumulation);
  cost.load = load_seconds(inputs) * share / threads;
  cost.data_wait = std::max(0.0, cost.load - step);
}

}  // namespace detail
}  // namespace lockstep::planner
