#include "lockstep/planner/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "lockstep/config/decisions.h"
#include "lockstep/planner/detail/search.h"

namespace lockstep::planner {
namespace {

constexpr std::array kMethods = {Method::single, Method::ddp,   Method::data_parallel,
                                 Method::zero1,  Method::zero2, Method::zero3};

// Returns 1, all devices, the powers of two in between, and the most of them that
// divide the batch.
std::set<int> rank_counts(const CostInputs& inputs, const Constraints& constraints) {
  if (constraints.ranks) return {*constraints.ranks};
  const int devices =
      inputs.on_gpu() ? std::max(1, static_cast<int>(inputs.machine.gpus.size())) : 1;
  std::set<int> counts{1, devices};
  for (int n = 2; n < devices; n *= 2) counts.insert(n);
  int most = devices;
  while (constraints.global && *constraints.global % most != 0) --most;
  counts.insert(most);
  return counts;
}

std::int64_t share_of(const CostInputs& inputs, const Constraints& constraints,
                      int ranks) {
  if (constraints.per_rank) return *constraints.per_rank;
  if (!constraints.global && constraints.micro && constraints.accumulation) {
    return *constraints.micro * *constraints.accumulation;
  }
  if (!constraints.global) return usual_global(inputs.config.batch, ranks) / ranks;
  return *constraints.global % ranks == 0 ? *constraints.global / ranks : 0;
}

// Returns the sizes that divide the share.
std::vector<std::int64_t> micro_sizes(const Constraints& constraints,
                                      std::int64_t share) {
  if (constraints.micro) return {*constraints.micro};
  if (constraints.accumulation) return {share / *constraints.accumulation};
  constexpr std::int64_t kMostTried = 1 << 16;
  std::vector<std::int64_t> sizes{share};
  for (std::int64_t size = 1; size <= std::min(share - 1, kMostTried); ++size) {
    if (share % size == 0) sizes.push_back(size);
  }
  return sizes;
}

struct Option {
  Method method;
  int ranks;
  std::int64_t share;
  int shard_group = 0;
};

// Returns the groups within which ranks may shard; 0 is all of them.
std::vector<int> shard_groups(const CostInputs& inputs, const Constraints& constraints,
                              const Option& option) {
  if (stage_of(option.method) == 0) return {0};
  if (constraints.shard_group) {
    const int asked = *constraints.shard_group;
    return {asked >= option.ranks ? 0 : asked};
  }
  const int node = ranks_of_node(inputs, option.ranks);
  return node > 1 ? std::vector<int>{node, 0} : std::vector<int>{0};
}

std::vector<CandidateOutcome> try_option(const CostInputs& inputs,
                                         const Constraints& constraints,
                                         const Option& option) {
  std::vector<CandidateOutcome> list;
  const bool blocks = inputs.model.can_recompute() && constraints.can_recompute;
  const bool cuda = inputs.on_gpu();
  for (const auto micro : micro_sizes(constraints, option.share)) {
    if (micro <= 0 || option.share % micro != 0) continue;
    for (const bool recompute : {false, true}) {
      if (recompute && !blocks) continue;
      for (const bool offload : {false, true}) {
        if (offload && !cuda) continue;
        const Candidate candidate{.method = option.method,
                                  .ranks = option.ranks,
                                  .micro = micro,
                                  .accumulation = option.share / micro,
                                  .recompute = recompute,
                                  .offload = offload,
                                  .shard_group = option.shard_group};
        list.push_back({predict(inputs, candidate),
                        detail::barred(inputs, constraints, candidate)});
      }
    }
  }
  return list;
}

// Candidates with less that could go wrong come first among equals.
int oddity(const Candidate& candidate) {
  const auto method = candidate.method;
  return (method >= Method::zero1 ? 8 * static_cast<int>(method) : 0) +
         (candidate.offload ? 4 : 0) + (candidate.recompute ? 2 : 0) +
         (method == Method::data_parallel ? 1 : 0);
}

bool better(const CandidateOutcome& a, const CandidateOutcome& b) {
  // Copies to the host are predicted to be hidden, which they seldom are as a whole:
  // they are for what fits in no other way.
  const auto key = [](const CandidateOutcome& o) {
    return std::tuple(!o.lost.empty(), !o.prediction.fits(),
                      o.prediction.candidate.offload);
  };
  if (key(a) != key(b)) return key(a) < key(b);
  const auto& x = a.prediction;
  const auto& y = b.prediction;
  // Of those that do not fit the smallest comes first.
  if (!x.fits() && !y.fits()) return x.memory.peak() < y.memory.peak();
  // Speeds are compared in classes, so that the order is transitive. Shards are for
  // memory: they are taken for what else does not fit, or for a clear gain.
  const auto speed = [](const Prediction& p) {
    const double worth = stage_of(p.candidate.method) > 0 ? detail::kClearGain : 1;
    return p.samples_per_second > 0
               ? std::floor(std::log(worth * p.samples_per_second) /
                            detail::kEqualSpeeds)
               : -1e18;
  };
  if (speed(x) != speed(y)) return speed(x) > speed(y);
  // Fewer passes through the model win, but not by copies that have to be hidden.
  const auto taste = [](const Candidate& c) {
    return std::tuple(c.offload, -c.micro, oddity(c));
  };
  return taste(x.candidate) < taste(y.candidate);
}

}  // namespace

Constraints constraints_of(const config::Config& config) {
  using config::Strategy;
  Constraints constraints;
  switch (config.parallel.strategy) {
    case Strategy::single:
      constraints.method = Method::single;
      break;
    case Strategy::data_parallel:
      constraints.method = Method::data_parallel;
      break;
    case Strategy::ddp:
      constraints.method = Method::ddp;
      break;
    case Strategy::zero:
      constraints.method = method_of_stage(config.parallel.zero_stage.value_or(2));
      break;
    default:
      break;
  }
  const auto take = [](const auto& knob, auto& into) {
    if (!knob.is_auto()) into = knob.value();
  };
  take(config.parallel.ranks, constraints.ranks);
  if (!config.parallel.device_ids.empty()) {
    constraints.ranks = static_cast<int>(config.parallel.device_ids.size());
  }
  take(config.parallel.shard_group, constraints.shard_group);
  take(config.batch.global, constraints.global);
  take(config.batch.per_rank, constraints.per_rank);
  take(config.batch.micro, constraints.micro);
  take(config.batch.accumulation, constraints.accumulation);
  take(config.memory.offload, constraints.offload);
  if (!config.memory.recompute_every.is_auto()) {
    constraints.recompute = config.memory.recompute_every.value() > 0;
  }
  constraints.threads_only = config::asks_for_threads(config.comm);
  constraints.processes_only = config::asks_for_processes(config.comm);
  // Passes that are written out compute no block again.
  constraints.can_recompute =
      !config.parallel.sync_batch_norm && !config.model.own_backward.value_or(false);
  return constraints;
}

std::int64_t usual_global(const config::BatchConfig& batch, int ranks) {
  const auto at_once = ranks * batch.micro.value_or(1) * batch.accumulation.value_or(1);
  return at_once * std::max<std::int64_t>(1, config::kDefaultGlobalBatch / at_once);
}

std::vector<CandidateOutcome> outcomes(const CostInputs& inputs,
                                       const Constraints& constraints) {
  std::vector<CandidateOutcome> list;
  for (const int ranks : rank_counts(inputs, constraints)) {
    const auto share = share_of(inputs, constraints, ranks);
    if (share == 0) continue;
    for (const auto method : kMethods) {
      const bool alone = method == Method::single;
      const bool named = constraints.method && *constraints.method == method;
      if (alone != (ranks == 1) && !named) continue;
      if (alone && ranks > 1) continue;
      Option option{method, ranks, share};
      for (const int group : shard_groups(inputs, constraints, option)) {
        option.shard_group = group;
        for (auto& one : try_option(inputs, constraints, option)) {
          list.push_back(std::move(one));
        }
      }
    }
  }
  std::stable_sort(list.begin(), list.end(), better);
  detail::say_why(inputs, list);
  return list;
}

}  // namespace lockstep::planner
