// Chooses the policy, and collects its facts.
#include <algorithm>

#include "lockstep/base/text.h"
#include "lockstep/planner/detail/resolver.h"
#include "lockstep/planner/search.h"

namespace lockstep::planner::detail {
namespace {

using config::Policy;
using hardware::Machine;

Facts facts_of(const Resolver& r, const Machine& machine, const Knowledge& knowledge) {
  const auto& config = r.config();
  Facts facts;
  facts.knobs = config.planner;
  facts.can_recompute = knowledge.model && knowledge.model->can_recompute() &&
                        !config.parallel.sync_batch_norm;
  if (config.parallel.device != config::Device::cuda) return facts;
  const auto gpus = static_cast<int>(machine.gpus.size());
  const auto ids = static_cast<int>(config.parallel.device_ids.size());
  const bool alone = config.parallel.strategy == config::Strategy::single;
  facts.devices = alone ? 1 : config.parallel.ranks.value_or(ids > 0 ? ids : gpus);
  for (int i = 0; i < std::min(facts.devices, gpus); ++i) {
    const auto bytes = machine.gpus[static_cast<std::size_t>(i)].memory_total_bytes;
    facts.memory_bytes =
        facts.memory_bytes == 0 ? bytes : std::min(facts.memory_bytes, bytes);
  }
  return facts;
}

Preference apply_policy(Policy policy, const Facts& facts) {
  switch (policy) {
    case Policy::table:
      return table_policy(facts);
    case Policy::simple:
      return simple_policy(facts);
    case Policy::flags:
      return flags_policy(facts);
    default:
      return zero2_policy(facts);
  }
}

// Backends for processes and for threads exclude a strategy, whatever the policy says.
void drop_what_clashes(const Constraints& constraints, Preference& preference) {
  const bool threads = preference.method == Method::data_parallel;
  if ((threads && constraints.processes_only) ||
      (preference.method && *preference.method >= Method::ddp &&
       constraints.threads_only)) {
    preference.method.reset();
  }
}

bool any_fits(const std::vector<CandidateOutcome>& candidates) {
  return !candidates.empty() && candidates[0].lost.empty() &&
         candidates[0].prediction.fits();
}

// Stage 2 is the usual one; where nothing of it fits, and something of stage 3 does, it
// is that.
Constraints with_stage(const Resolver& r, const CostInputs& inputs,
                       Constraints constraints) {
  const bool open = r.config().parallel.strategy == config::Strategy::zero &&
                    r.is_open("parallel.zero_stage");
  if (!open) return constraints;
  auto config = inputs.config;
  if (r.is_open("memory.find_micro")) config.memory.find_micro = false;
  const CostInputs most{config, inputs.machine, inputs.model, inputs.correction};
  if (any_fits(outcomes(most, constraints))) return constraints;
  auto three = constraints;
  three.method = Method::zero3;
  return any_fits(outcomes(most, three)) ? three : constraints;
}

// Searches within memory.target, which a search by trying keeps to; if nothing fits
// that, within memory.fraction and without trying.
PolicyAnswer ask_measured(const Resolver& r, const CostInputs& inputs,
                          const Constraints& constraints) {
  PolicyAnswer answer{.candidates = outcomes(inputs, constraints)};
  const bool can_leave_out =
      r.is_open("memory.find_micro") && will_find_micro(inputs.config);
  if (can_leave_out && !any_fits(answer.candidates)) {
    auto config = inputs.config;
    config.memory.find_micro = false;
    const CostInputs larger{config, inputs.machine, inputs.model, inputs.correction};
    if (auto candidates = outcomes(larger, constraints); any_fits(candidates)) {
      answer.preference = measured_policy(larger, constraints, candidates);
      answer.preference.find_micro = false;
      answer.preference.find_micro_because =
          str("nothing fits memory.target ", text::from_double(config.memory.target),
              "; this is predicted to fit memory.fraction ",
              text::from_double(config.memory.fraction));
      answer.candidates = std::move(candidates);
      return answer;
    }
  }
  answer.preference = measured_policy(inputs, constraints, answer.candidates);
  return answer;
}

PolicyAnswer ask_for_training(const Resolver& r, const Machine& machine,
                              const Knowledge& knowledge) {
  const auto constraints = constraints_of(r.config());
  if (r.config().planner.policy == Policy::measured) {
    if (!knowledge.model) return {};
    const CostInputs inputs{r.config(), machine, *knowledge.model,
                            knowledge.correction};
    return ask_measured(r, inputs, with_stage(r, inputs, constraints));
  }
  auto preference =
      apply_policy(r.config().planner.policy, facts_of(r, machine, knowledge));
  // A strategy that was set by name stays, whatever the rule says.
  const bool several = constraints.method && *constraints.method != Method::single;
  if (constraints.ranks || several) preference.ranks.reset();
  drop_what_clashes(constraints, preference);
  return {.preference = std::move(preference), .candidates = {}};
}

}  // namespace

PolicyAnswer ask_policy(const Resolver& r, const Machine& machine,
                        const Knowledge& knowledge) {
  auto answer = ask_for_training(r, machine, knowledge);
  if (knowledge.model) {
    const CostInputs inputs{r.config(), machine, *knowledge.model,
                            knowledge.correction};
    const std::int64_t named = r.config().batch.micro.value_or(1);
    auto& preference = answer.preference;
    preference.eval = evaluation_batch(inputs, preference.micro.value_or(named));
  }
  return answer;
}

}  // namespace lockstep::planner::detail
