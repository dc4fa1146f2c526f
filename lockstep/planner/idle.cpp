// Says why a plan leaves GPUs idle: nobody pays for them to find out later.
#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/base/units.h"
#include "lockstep/planner/detail/search.h"
#include "lockstep/planner/report.h"

namespace lockstep::planner::detail {
namespace {

int count_used(const config::ParallelConfig& parallel) {
  if (parallel.device != config::Device::cuda) return 0;
  const auto& ids = parallel.device_ids;
  const std::set<int> distinct(ids.begin(), ids.end());
  return distinct.empty() ? parallel.ranks.value() : static_cast<int>(distinct.size());
}

// Returns the knob that a user has set to fewer GPUs; "" if none was.
std::string knob_that_decides(const Plan& plan, const Constraints& wanted) {
  const auto& parallel = plan.config.config.parallel;
  if (parallel.device != config::Device::cuda) return "parallel.device=cpu is set";
  if (!parallel.device_ids.empty()) return "parallel.device_ids is set";
  if (wanted.ranks) return str("parallel.ranks=", *wanted.ranks, " is set");
  if (wanted.method == Method::single) return "parallel.strategy=single is set";
  return "";
}

std::string reason_of(const Plan& plan, const std::string& key) {
  for (const auto& choice : plan.choices) {
    if (choice.key == key) return choice.because;
  }
  return "";
}

// Returns the fastest with so many ranks that fits; nothing if none does.
std::optional<Prediction> best_of(const std::vector<CandidateOutcome>& list, int ranks,
                                  const Constraints& constraints) {
  std::optional<Prediction> best;
  for (const auto& [prediction, lost] : list) {
    if (prediction.candidate.ranks != ranks || !prediction.fits()) continue;
    if (!excluded(constraints, prediction.candidate).empty()) continue;
    if (!best || prediction.samples_per_second > best->samples_per_second) {
      best = prediction;
    }
  }
  return best;
}

// Returns the smallest batch, of those that are a power of two times as large, with
// which all GPUs are the fastest.
std::string larger_batch(const CostInputs& inputs, Constraints wanted,
                         const Prediction& now) {
  constexpr int kDoublings = 10;
  const auto gpus = static_cast<std::int64_t>(inputs.machine.gpus.size());
  const auto global = now.candidate.global();
  wanted.per_rank.reset();
  std::int64_t batch = (global + gpus - 1) / gpus * gpus;
  for (int i = 0; i <= kDoublings; ++i, batch *= 2) {
    if (batch == global) continue;
    wanted.global = batch;
    const auto list = outcomes(inputs, wanted);
    if (list.empty() || !list[0].lost.empty()) continue;
    const auto& best = list[0].prediction;
    if (best.candidate.ranks != gpus) continue;
    if (best.samples_per_second <= now.samples_per_second) continue;
    return str("batch.global=", batch, " would use all ", gpus, ": ",
               units::format_rate(best.samples_per_second), " samples/s with ",
               name_of(best.candidate.method));
  }
  return str("no batch up to ", batch / 2, " would use all ", gpus);
}

// Returns why all GPUs are no faster than those that were taken.
std::string why_slower_with_all(const Prediction& now, const Prediction& all) {
  const auto& c = all.candidate;
  const double ratio = now.samples_per_second / all.samples_per_second;
  const double exchanged = all.time.exposed / all.time.step();
  constexpr double kMuch = 0.2;  // of a step
  const auto cause =
      all.time.data_wait > 0 ? "data loading is the bottleneck"
      : exchanged >= kMuch
          ? str("all-reduce is ", std::round(100 * exchanged), " % of it")
      : all.time.host_bound ? "launching kernels takes longer than they run"
                            : "too little work for each";
  return str("with batch.global ", c.global(), " each of ", c.ranks, " would get ",
             c.micro * c.accumulation,
             c.micro * c.accumulation == 1 ? " sample" : " samples",
             " and a step take ", seconds_text(all.time.step()), ", not ",
             seconds_text(now.time.step()), " (", cause, ")",
             ratio < 1 ? ", too small a gain" : "");
}

std::string cause_and_remedy(const Plan& plan, const CostInputs& inputs,
                             const Constraints& wanted) {
  const auto& now = *plan.prediction;
  const auto gpus = static_cast<int>(inputs.machine.gpus.size());
  const auto remedy = "; " + larger_batch(inputs, wanted, now);
  const auto global = now.candidate.global();
  if (wanted.global && global % gpus != 0) {
    return str("batch.global ", global, " is not a multiple of ", gpus, remedy);
  }
  if (const auto all = best_of(plan.candidates, gpus, wanted)) {
    return why_slower_with_all(now, *all) + remedy;
  }
  if (const auto other = best_of(plan.candidates, gpus, {})) {
    const int stage = stage_of(other->candidate.method);
    return str("what was requested does not fit with ", gpus,
               " ranks; parallel.strategy=",
               stage > 0 ? str("zero parallel.zero_stage=", stage)
                         : std::string(name_of(other->candidate.method)),
               " would: ", units::format_rate(other->samples_per_second), " samples/s");
  }
  return str("nothing fits with ", gpus, " ranks, which need memory for NCCL, too",
             remedy);
}

}  // namespace

std::string why_idle(const Plan& plan, const Situation& situation) {
  const auto& [whole, machine, knowledge, wanted] = situation;
  const auto& config = plan.config.config;
  const auto gpus = static_cast<int>(whole.gpus.size());
  const int used = count_used(config.parallel);
  if (used >= gpus) return "";
  const auto begin = used == 0
                         ? str("uses none of ", gpus, gpus == 1 ? " GPU" : " GPUs")
                         : str("uses ", used, " of ", gpus, " GPUs");
  if (const auto knob = knob_that_decides(plan, wanted); !knob.empty()) {
    return str(begin, ": ", knob);
  }
  const bool measured = config.planner.policy == config::Policy::measured;
  if (!plan.prediction || !measured) {
    return str(begin, ": ", reason_of(plan, "parallel.ranks"));
  }
  const auto open = reopened(plan);
  const CostInputs inputs{open, machine, *knowledge.model, knowledge.correction};
  return str(begin, ": ", cause_and_remedy(plan, inputs, wanted));
}

}  // namespace lockstep::planner::detail
