// Which policy is asked, and what it is told.
#include <algorithm>

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

Wish rule_of(Policy policy, const Facts& facts) {
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
void drop_what_clashes(const Asked& asked, Wish& wish) {
  const bool threads = wish.method == Method::data_parallel;
  if ((threads && asked.processes_only) ||
      (wish.method == Method::ddp && asked.threads_only)) {
    wish.method.reset();
  }
}

Wish training_wish(const Resolver& r, const Machine& machine,
                   const Knowledge& knowledge, std::vector<Outcome>& candidates) {
  const auto asked = asked_of(r.config());
  if (r.config().planner.policy == Policy::measured) {
    if (!knowledge.model) return {};
    const Scene scene{r.config(), machine, *knowledge.model, knowledge.correction};
    candidates = outcomes(scene, asked);
    return measured_policy(scene, asked, candidates);
  }
  auto wish = rule_of(r.config().planner.policy, facts_of(r, machine, knowledge));
  // What was asked for by name stays, whatever the rule says.
  const bool several = asked.method && *asked.method != Method::single;
  if (asked.ranks || several) wish.ranks.reset();
  drop_what_clashes(asked, wish);
  return wish;
}

}  // namespace

Wish wish_of(const Resolver& r, const Machine& machine, const Knowledge& knowledge,
             std::vector<Outcome>& candidates) {
  auto wish = training_wish(r, machine, knowledge, candidates);
  if (knowledge.model) {
    const Scene scene{r.config(), machine, *knowledge.model, knowledge.correction};
    const std::int64_t named = r.config().batch.micro.value_or(1);
    wish.eval = evaluation_batch(scene, wish.micro.value_or(named));
  }
  return wish;
}

}  // namespace lockstep::planner::detail
