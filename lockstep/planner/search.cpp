#include "lockstep/planner/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/config/decisions.h"

namespace lockstep::planner {
namespace {

constexpr std::array kMethods = {Method::single, Method::ddp,   Method::data_parallel,
                                 Method::zero1,  Method::zero2, Method::zero3};

// Returns 1, all devices, and the powers of two in between.
std::set<int> rank_counts(const CostInputs& inputs, const Constraints& constraints) {
  if (constraints.ranks) return {*constraints.ranks};
  const int devices =
      inputs.on_gpu() ? static_cast<int>(inputs.machine.gpus.size()) : 1;
  std::set<int> counts{1, std::max(1, devices)};
  for (int n = 2; n < devices; n *= 2) counts.insert(n);
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

// Returns powers of two that divide the share, and the share itself.
std::vector<std::int64_t> micro_sizes(const Constraints& constraints,
                                      std::int64_t share) {
  if (constraints.micro) return {*constraints.micro};
  if (constraints.accumulation) return {share / *constraints.accumulation};
  std::vector<std::int64_t> sizes{share};
  for (std::int64_t size = 1; size < share; size *= 2) {
    if (share % size == 0) sizes.push_back(size);
  }
  return sizes;
}

// Returns why a candidate is excluded, whatever it would cost.
std::string excluded(const Constraints& constraints, const Candidate& candidate) {
  if (constraints.method && *constraints.method != candidate.method) {
    return str(name_of(*constraints.method), " was asked for");
  }
  if (constraints.threads_only && candidate.method != Method::data_parallel &&
      candidate.ranks > 1) {
    return "comm.backend local is for threads of one process";
  }
  if (constraints.processes_only && candidate.method == Method::data_parallel) {
    return "comm.backend is one for processes";
  }
  if (constraints.recompute && *constraints.recompute != candidate.recompute) {
    return "memory.recompute_every was named";
  }
  if (constraints.offload && *constraints.offload != candidate.offload) {
    return "memory.offload was named";
  }
  return "";
}

// Offloaded activations are pinned: the host can not put them anywhere else.
std::string host_lacks(const CostInputs& inputs, Candidate candidate) {
  constexpr double kOfHost = 0.5;
  candidate.offload = false;
  const double wanted = memory_cost(inputs, candidate).activations * candidate.ranks;
  const auto& machine = inputs.machine;
  const auto host = machine.memory_available_bytes > 0 ? machine.memory_available_bytes
                                                       : machine.memory_total_bytes;
  if (host <= 0 || wanted <= kOfHost * static_cast<double>(host)) return "";
  return str("needs ", units::format_bytes(wanted), " of the host > ", kOfHost, " x ",
             units::format_bytes(host));
}

// Returns why a candidate is barred, for all reasons but the device's memory.
std::string barred(const CostInputs& inputs, const Constraints& constraints,
                   const Candidate& candidate) {
  auto why = excluded(constraints, candidate);
  return why.empty() && candidate.offload ? host_lacks(inputs, candidate) : why;
}

struct Option {
  Method method;
  int ranks;
  std::int64_t share;
};

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
                                  .offload = offload};
        list.push_back(
            {predict(inputs, candidate), barred(inputs, constraints, candidate)});
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

constexpr double kClearGain = 0.95;

bool better(const CandidateOutcome& a, const CandidateOutcome& b) {
  const auto key = [](const CandidateOutcome& o) {
    return std::tuple(!o.lost.empty(), !o.prediction.fits());
  };
  if (key(a) != key(b)) return key(a) < key(b);
  const auto& x = a.prediction;
  const auto& y = b.prediction;
  // Of those that do not fit the smallest comes first.
  if (!x.fits() && !y.fits()) return x.memory.peak() < y.memory.peak();
  // Speeds are compared in classes, so that the order is transitive. Shards are for
  // memory: they are taken for what else does not fit, or for a clear gain.
  const auto speed = [](const Prediction& p) {
    constexpr double kEqual = 0.001;
    const double worth = stage_of(p.candidate.method) > 0 ? kClearGain : 1;
    return p.samples_per_second > 0
               ? std::floor(std::log(worth * p.samples_per_second) / kEqual)
               : -1e18;
  };
  if (speed(x) != speed(y)) return speed(x) > speed(y);
  // Fewer passes through the model win, but not by copies that have to be hidden.
  const auto taste = [](const Candidate& c) {
    return std::tuple(c.offload, -c.micro, oddity(c));
  };
  return taste(x.candidate) < taste(y.candidate);
}

// Writes why those that could have been taken were not.
void say_why(const CostInputs& inputs, std::vector<CandidateOutcome>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto& [prediction, lost] = list[i];
    if (!lost.empty()) continue;
    if (!prediction.fits()) {
      const auto limit = memory_limit(inputs, prediction.candidate);
      lost = str("needs ", units::format_bytes(prediction.memory.peak()), " > ",
                 limit.because);
    } else if (i > 0) {
      const double slower =
          list[0].prediction.samples_per_second / prediction.samples_per_second - 1;
      lost = slower < 0.0005
                 ? "no faster, and more can go wrong"
                 : str(std::round(1000 * std::min(slower, 1e6)) / 10, " % slower");
    }
  }
}

// Returns the best that fits on this machine, whatever was asked for.
std::string what_would_fit(const CostInputs& inputs,
                           const std::vector<CandidateOutcome>& list) {
  const Prediction* best = nullptr;
  for (const auto& [prediction, lost] : list) {
    const auto& candidate = prediction.candidate;
    if (!prediction.fits()) continue;
    if (candidate.offload && !host_lacks(inputs, candidate).empty()) continue;
    const bool better =
        best == nullptr || prediction.samples_per_second > best->samples_per_second;
    if (better) best = &prediction;
  }
  if (best == nullptr) {
    return "nothing fits on this machine: take a smaller model or larger GPUs";
  }
  const auto& c = best->candidate;
  return str("what would fit: ", name_of(c.method), " over ", c.ranks,
             c.ranks == 1 ? " rank" : " ranks", " with ",
             units::format_bytes(best->memory.peak()), " each");
}

// Names the candidate that was asked for and needs least of the host.
[[noreturn]] void refuse_offload(const CostInputs& inputs,
                                 const Constraints& constraints,
                                 const std::vector<CandidateOutcome>& list) {
  const Candidate* least = nullptr;
  for (const auto& outcome : list) {
    const auto& c = outcome.prediction.candidate;
    if (!excluded(constraints, c).empty()) continue;
    if (least == nullptr || c.micro * c.ranks < least->micro * least->ranks ||
        (c.recompute && !least->recompute && c.micro == least->micro)) {
      least = &c;
    }
  }
  LOCKSTEP_CHECK(least != nullptr);
  throw Error(Fault::hardware, "memory.offload: true, but ", name_of(least->method),
              " of ", inputs.model.name, " over ", least->ranks,
              least->ranks == 1 ? " rank" : " ranks", " with micro-batches of ",
              least->micro, " ", host_lacks(inputs, *least),
              "; lower batch.micro, or leave memory.offload auto");
}

// Returns "predicted peak 1.2 GiB <= 0.9 x 22.5 GiB".
std::string peak_text(const CostInputs& inputs, const Prediction& p) {
  const auto limit = memory_limit(inputs, p.candidate);
  return str("predicted peak ", units::format_bytes(p.memory.peak()),
             limit.bytes <= 0 ? ""
             : p.fits()       ? " <= "
                              : " > ",
             limit.bytes <= 0 ? "" : limit.because);
}

std::string why_recompute(const CostInputs& inputs, const Constraints& constraints,
                          const Prediction& p) {
  auto other = p.candidate;
  other.recompute = !other.recompute;
  const auto limit = memory_limit(inputs, other).because;
  if (other.recompute) {
    if (p.fits()) return str("all activations fit: ", peak_text(inputs, p));
    if (!inputs.model.can_recompute()) {
      return "the model has no blocks that could be computed again";
    }
    if (!constraints.can_recompute) {
      return "with parallel.sync_batch_norm nothing can be computed again";
    }
    return str("does not save enough: with it ",
               units::format_bytes(predict(inputs, other).memory.peak()), " > ", limit);
  }
  const auto whole = predict(inputs, other);
  return whole.fits()
             ? "larger micro-batches are faster by more than computing again costs"
             : str("without it ", units::format_bytes(whole.memory.peak()), " > ",
                   limit);
}

std::string why_offload(const CostInputs& inputs, const Prediction& p) {
  auto other = p.candidate;
  other.offload = !other.offload;
  const auto limit = memory_limit(inputs, other).because;
  const auto peak = units::format_bytes(predict(inputs, other).memory.peak());
  if (!other.offload) return str("without it ", peak, " > ", limit);
  if (p.fits()) return "activations fit without it";
  if (!inputs.on_gpu()) return "activations are in the host's memory already";
  const auto lacks = host_lacks(inputs, other);
  return lacks.empty() ? str("does not save enough: with it ", peak, " > ", limit)
                       : "it " + lacks;
}

std::string rate_text(const Prediction& prediction) {
  return units::format_rate(prediction.samples_per_second) + " samples/s";
}

}  // namespace

void check_state(const CostInputs& inputs, const Prediction& p,
                 const std::vector<CandidateOutcome>& list) {
  if (p.limit <= 0 || p.memory.state() <= p.limit) return;
  const auto& c = p.candidate;
  throw Error(Fault::hardware, "parallel.strategy: ", name_of(c.method), " of ",
              inputs.model.name, " with micro-batches of ", c.micro,
              c.recompute ? " and recomputing" : "", " needs ",
              units::format_bytes(p.memory.peak()), " a rank > ",
              memory_limit(inputs, c).because, " = ", units::format_bytes(p.limit),
              ": ", terms_of(p.memory), "; ", units::format_bytes(p.memory.state()),
              " of it are there whatever the batch; ", what_would_fit(inputs, list));
}

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
  constraints.can_recompute = !config.parallel.sync_batch_norm;
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
      for (auto& one : try_option(inputs, constraints, {method, ranks, share})) {
        list.push_back(std::move(one));
      }
    }
  }
  std::stable_sort(list.begin(), list.end(), better);
  say_why(inputs, list);
  return list;
}

Preference measured_policy(const CostInputs& inputs, const Constraints& constraints,
                           const std::vector<CandidateOutcome>& list) {
  const bool any =
      std::any_of(list.begin(), list.end(), [&](const CandidateOutcome& o) {
        return excluded(constraints, o.prediction.candidate).empty();
      });
  if (!any) return {};  // knobs that contradict each other are refused by their checks
  const auto& p = list[0].prediction;
  const auto& c = p.candidate;
  if (!barred(inputs, constraints, c).empty())
    refuse_offload(inputs, constraints, list);
  check_state(inputs, p, list);
  Preference preference;
  preference.method = c.method;
  preference.ranks = c.ranks;
  const auto fitting =
      std::count_if(list.begin(), list.end(), [&](const CandidateOutcome& o) {
        return o.prediction.fits() &&
               barred(inputs, constraints, o.prediction.candidate).empty();
      });
  preference.method_because =
      fitting == 0 ? str("takes the least memory: ", rate_text(p))
                   : str("the fastest of ", fitting, " that fit: ", rate_text(p));
  preference.ranks_because = preference.method_because;
  preference.micro = c.micro;
  preference.accumulation = c.accumulation;
  preference.batch_because =
      peak_text(inputs, p) + (p.fits() ? "" : ", and tried all the same");
  preference.micro_is_guess = true;
  preference.recompute = c.recompute;
  preference.recompute_because = why_recompute(inputs, constraints, p);
  preference.offload = c.offload;
  preference.offload_because = why_offload(inputs, p);
  return preference;
}

}  // namespace lockstep::planner
