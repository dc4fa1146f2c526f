#pragma once

#include <set>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/planner/plan.h"
#include "lockstep/planner/policies.h"

namespace lockstep::planner::detail {

// Keeps the plan while it is being made. Every knob is offered; only those that were
// `auto` take the offer.
class Resolver {
 public:
  explicit Resolver(config::Loaded wanted) {
    plan_.config = std::move(wanted);
    const auto keys = config::auto_keys(plan_.config);
    open_ = {keys.begin(), keys.end()};
  }

  template <typename Value>
  void offer(const std::string& key, const Value& value, const std::string& because) {
    if (open_.erase(key) == 0) return;
    const auto text = str(value);
    config::set(plan_.config, {key, text}, {config::Origin::planner, because});
    plan_.choices.push_back({key, text, because});
  }

  // Offers nothing without a value: the knob has another rule.
  template <typename Value>
  void offer(const std::string& key, const std::optional<Value>& value,
             const std::string& because) {
    if (value) offer(key, *value, because);
  }

  bool is_open(const std::string& key) const { return open_.count(key) > 0; }

  // Throws for a knob that was set and can not be had on this machine.
  [[noreturn]] void refuse(Fault fault, const std::string& key,
                           const std::string& text) {
    const auto place = config::place_of(plan_.config.sources[key]);
    throw Error(fault, place, place.empty() ? "" : ": ", key, ": ", text);
  }

  const config::Config& config() const { return plan_.config.config; }
  void validate() const { config::validate(plan_.config); }
  Plan take() {
    LOCKSTEP_CHECK(open_.empty(), "no rule for ", *open_.begin());
    return std::move(plan_);
  }

 private:
  Plan plan_;
  std::set<std::string> open_;
};

// Fills in data.workers, when the rest of a step is known, and data.prefetch.
void resolve_workers(Resolver& r, const hardware::Machine& machine,
                     const Knowledge& knowledge);
void resolve_prefetch(Resolver& r, const hardware::Machine& machine,
                      const Knowledge& knowledge);

// Fills in global, per_rank, micro, accumulation, eval and memory.find_micro.
void resolve_batch(Resolver& r, const Preference& preference);

// Fills in zero_stage and shard_group, when ranks and strategy are known.
struct ZeroFacts {
  const hardware::Machine& machine;
  const Knowledge& knowledge;
  const Preference& preference;
};
void resolve_zero(Resolver& r, const ZeroFacts& facts);

struct PolicyAnswer {
  Preference preference;
  std::vector<CandidateOutcome> candidates;  // that `measured` looked at for it
};

// Asks planner.policy; device and precision are known.
PolicyAnswer ask_policy(const Resolver& r, const hardware::Machine& machine,
                        const Knowledge& knowledge);

std::vector<Variable> variables_for(const config::Config& config,
                                    const hardware::Machine& machine,
                                    const std::vector<std::string>& set);

}  // namespace lockstep::planner::detail
