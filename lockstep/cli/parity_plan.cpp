// Plans the recipe at every size, with everything that could differ made the same.
#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/parity.h"
#include "lockstep/hardware/machine.h"

namespace lockstep::cli {
namespace {

using config::Origin;

void make_short(jobs::Settings& settings, const config::Config& config,
                std::int64_t steps) {
  jobs::only_steps(settings, config, steps);
  settings.set("train.log_every", "1", "every step is compared");
}

// Returns the samples of a step, from the knobs that were set.
std::int64_t global_batch(const config::BatchConfig& batch, int ranks) {
  if (!batch.global.is_auto()) return batch.global.value();
  if (!batch.per_rank.is_auto()) return batch.per_rank.value() * ranks;
  if (batch.micro.is_auto() || batch.accumulation.is_auto()) {
    return config::kDefaultGlobalBatch;
  }
  return batch.micro.value() * batch.accumulation.value() * ranks;
}

void make_batches_the_same(jobs::Settings& settings, const config::Config& config,
                           const std::vector<int>& sizes) {
  auto multiple = config.batch.accumulation.value_or(1);
  for (const auto ranks : sizes) {
    multiple = std::lcm(multiple, ranks * config.batch.accumulation.value_or(1));
  }
  const auto asked = global_batch(config.batch, sizes[0]);
  const auto global = (asked + multiple - 1) / multiple * multiple;
  for (const auto* key : {"batch.per_rank", "batch.micro"}) {
    if (!settings.typed(key)) {
      settings.set(key, "auto", "it follows from the number of ranks");
    }
  }
  // A size that was typed is left to the planner, which says why it can not be.
  if (settings.typed("batch.global")) return;
  settings.set("batch.global", str(global),
               asked == global ? "the same at every size"
                               : str("a multiple of ", multiple,
                                     ", so that every size can share it"));
}

// `cores` are those of the machine.
void make_threads_the_same(jobs::Settings& settings, const std::vector<int>& sizes,
                           int cores) {
  const int most = *std::max_element(sizes.begin(), sizes.end());
  settings.set("parallel.threads", str(std::max(1, cores / most)),
               "the same at every size");
}

void make_sizes_comparable(jobs::Settings& settings, const config::Config& config,
                           const std::vector<int>& sizes) {
  settings.set("precision.mode", "fp64", "it tells mistakes from rounding");
  if (config.model.dropout > 0) {
    settings.set("model.dropout", "0", "PyTorch draws other numbers");
  }
  settings.set("parallel.compression", "none", "it rounds what ranks exchange");
  settings.set("parallel.on_setup_failure", "stop", "every size has its ranks");
  make_batches_the_same(settings, config, sizes);
}

}  // namespace

ParityPlan parity_plan(const ParityRequest& request, config::Loaded wanted,
                       const hardware::Machine& machine) {
  jobs::Settings settings(wanted, "parity");
  if (settings.typed("parallel.ranks")) {
    throw Error(Fault::config, "parity: parallel.ranks is what --ranks lists; leave ",
                "parallel.ranks=", config::get(wanted, "parallel.ranks"), " out");
  }
  make_short(settings, wanted.config, request.steps);
  if (wanted.config.parallel.threads.is_auto()) {
    make_threads_the_same(settings, request.ranks, machine.physical_cores);
  }
  make_sizes_comparable(settings, wanted.config, request.ranks);
  ParityPlan plan;
  for (const auto ranks : request.ranks) {
    auto sized = wanted;
    config::set(sized, {"parallel.ranks", str(ranks)}, {Origin::override_, "--ranks"});
    config::set(sized, {"run.name", str("ranks_", ranks)},
                {Origin::override_, "parity"});
    try {
      plan.sizes.push_back(planner::resolve(std::move(sized), machine));
    } catch (const Error& error) {
      throw Error(error.fault(), "parity: no run with ", ranks,
                  ranks == 1 ? " rank: " : " ranks: ", error.what());
    }
  }
  plan.settings = settings.take();
  return plan;
}

}  // namespace lockstep::cli
