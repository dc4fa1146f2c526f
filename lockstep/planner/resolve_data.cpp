// Decides how batches are loaded.
#include <algorithm>

#include "lockstep/base/units.h"
#include "lockstep/planner/detail/resolver.h"
#include "lockstep/planner/detail/search.h"

namespace lockstep::planner::detail {

void resolve_workers(Resolver& r, const hardware::Machine& machine,
                     const Knowledge& knowledge) {
  const int ranks = r.config().parallel.ranks.value();
  if (knowledge.model && r.is_open("data.workers")) {
    const CostInputs inputs{r.config(), machine, *knowledge.model,
                            knowledge.correction};
    const auto candidate = candidate_of(r.config());
    const auto time = time_cost(inputs, candidate);
    const auto workers =
        loader_workers(inputs, candidate, time.step() - time.data_wait);
    r.offer("data.workers", workers.count,
            ranks > 1 ? str(workers.because, ", ", ranks * workers.count, " in all")
                      : workers.because);
  }
  const int logical = std::max(1, machine.logical_cores);
  constexpr int kMostWorkers = 3;  // a batch of small images is little work
  r.offer("data.workers", std::clamp(logical / ranks - 1, 1, kMostWorkers),
          str("cores: ", logical, ranks > 1 ? str(" / parallel.ranks ", ranks) : "",
              ", minus one for the training loop, at most ", kMostWorkers));
}

// Offers batches that hide a slow one, if they fit into a tenth of the host's memory.
void resolve_prefetch(Resolver& r, const hardware::Machine& machine,
                      const Knowledge& knowledge) {
  const auto& config = r.config();
  const auto share = config.batch.per_rank.value() * config.parallel.ranks.value();
  // A description from elsewhere may say any number: no product of integers.
  const double sample =
      knowledge.model ? static_cast<double>(knowledge.model->sample_bytes) : 0;
  constexpr double kMost = 1e18;
  const double bytes = std::min(kMost, sample * static_cast<double>(share));
  const int all = prefetched_batches(machine, 0);
  if (const int few = prefetched_batches(machine, bytes); few < all) {
    r.offer("data.prefetch", few,
            str("batches of ", units::format_bytes(static_cast<std::int64_t>(bytes)),
                " in a tenth of ", units::format_bytes(machine.memory_total_bytes)));
  }
  r.offer("data.prefetch", all, "default prefetch depth");
}

}  // namespace lockstep::planner::detail
