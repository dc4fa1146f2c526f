// Says in words why a candidate was taken, and why the others were not.
#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/config/decisions.h"
#include "lockstep/planner/detail/search.h"

namespace lockstep::planner {
namespace detail {

std::string excluded(const Constraints& constraints, const Candidate& candidate) {
  if (constraints.method && *constraints.method != candidate.method) {
    return str(name_of(*constraints.method), " was requested");
  }
  if (constraints.threads_only && candidate.method != Method::data_parallel &&
      candidate.ranks > 1) {
    return "comm.backend local is for threads of one process";
  }
  if (constraints.processes_only && candidate.method == Method::data_parallel) {
    return "comm.backend is one for processes";
  }
  if (constraints.shard_group && stage_of(candidate.method) > 0) {
    const auto lack =
        config::lack_of_shard_group(*constraints.shard_group, candidate.ranks);
    if (!lack.empty()) return "parallel.shard_group: " + lack;
  }
  if (constraints.recompute && *constraints.recompute != candidate.recompute) {
    return "memory.recompute_every is set";
  }
  if (constraints.offload && *constraints.offload != candidate.offload) {
    return "memory.offload is set";
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

namespace {

bool spans_hosts(const CostInputs& inputs, const Candidate& candidate) {
  if (candidate.method != Method::data_parallel || !inputs.on_gpu()) return false;
  const auto& pairs = inputs.machine.gpu_pairs;
  return std::any_of(pairs.begin(), pairs.end(), [&](const hardware::GpuPair& pair) {
    return pair.path == "network" &&
           std::max(pair.first, pair.second) < candidate.ranks;
  });
}

}  // namespace

std::string barred(const CostInputs& inputs, const Constraints& constraints,
                   const Candidate& candidate) {
  auto why = excluded(constraints, candidate);
  if (why.empty() && spans_hosts(inputs, candidate)) {
    why = "one process cannot span hosts";
  }
  return why.empty() && candidate.offload ? host_lacks(inputs, candidate) : why;
}

std::string short_text(const Prediction& prediction) {
  const auto& c = prediction.candidate;
  return str(name_of(c.method), " over ", c.ranks, c.ranks == 1 ? " rank" : " ranks",
             c.shard_group > 0 ? str(" in groups of ", c.shard_group) : "", " with ",
             units::format_bytes(prediction.memory.peak()), " each");
}

namespace {

// Returns why the first was taken before one that is as fast.
std::string why_equal(const Candidate& taken, const Candidate& other) {
  if (other.micro < taken.micro) return "as fast, with smaller micro-batches";
  if (stage_of(other.method) > 0) return "as fast; sharding only saves memory";
  return "as fast, and more complex";
}

std::string why_slower(const Prediction& taken, const Prediction& other) {
  const double ratio = taken.samples_per_second / other.samples_per_second;
  const auto percent = [](double share) { return std::round(1000 * share) / 10; };
  if (other.candidate.offload && !taken.candidate.offload &&
      ratio < 1 + kEqualSpeeds / 2) {
    return "offloading is used only where nothing else fits";
  }
  if (ratio < 1 - kEqualSpeeds) {
    return str(percent(1 / ratio - 1), " % faster, but sharding for less than ",
               percent(1 - kClearGain), " % is not worth it");
  }
  if (ratio < 1 + kEqualSpeeds / 2) return why_equal(taken.candidate, other.candidate);
  constexpr double kTwice = 2;
  constexpr double kMost = 1e6;
  if (ratio < kTwice) return str(percent(ratio - 1), " % slower");
  return str(std::round(10 * std::min(ratio, kMost)) / 10, " x slower");
}

}  // namespace

void say_why(const CostInputs& inputs, std::vector<CandidateOutcome>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto& [prediction, lost] = list[i];
    if (!lost.empty()) continue;
    if (!prediction.fits()) {
      lost = memory_lack(inputs, prediction);
    } else if (i > 0) {
      lost = why_slower(list[0].prediction, prediction);
    }
  }
}

}  // namespace detail

namespace {

using detail::barred;
using detail::excluded;
using detail::host_lacks;
using detail::short_text;

// Returns the fastest of a list that fits on this machine, whatever was requested, with
// the predictions of `inputs`.
std::optional<Prediction> fastest_that_fits(const CostInputs& inputs,
                                            const std::vector<CandidateOutcome>& list) {
  std::optional<Prediction> best;
  for (const auto& outcome : list) {
    const auto prediction = predict(inputs, outcome.prediction.candidate);
    const auto& candidate = prediction.candidate;
    if (!prediction.fits()) continue;
    if (candidate.offload && !host_lacks(inputs, candidate).empty()) continue;
    const bool better =
        !best || prediction.samples_per_second > best->samples_per_second;
    if (better) best = prediction;
  }
  return best;
}

// Optimizers that keep less for each weight, those that keep most first.
std::vector<std::pair<std::string, config::OptimConfig>> smaller_optimizers(
    const config::OptimConfig& now) {
  std::vector<std::pair<std::string, config::OptimConfig>> list;
  const auto add = [&](const std::string& words, config::Optimizer name,
                       double momentum) {
    auto other = now;
    other.name = name;
    other.momentum = momentum;
    if (num_states(other) < num_states(now)) list.emplace_back(words, other);
  };
  constexpr double kUsualMomentum = 0.9;
  add("optim.name=lion", config::Optimizer::lion, now.momentum);
  add("optim.name=sgd", config::Optimizer::sgd, kUsualMomentum);
  add("optim.name=sgd optim.momentum=0", config::Optimizer::sgd, 0);
  return list;
}

// Returns what a batch that gives each GPU a sample would do: shards need ranks, and
// ranks need samples. "" if the batch is large enough already, or does not help.
std::string what_a_larger_batch_does(const CostInputs& inputs) {
  const auto gpus = static_cast<std::int64_t>(inputs.machine.gpus.size());
  if (!inputs.on_gpu() || gpus < 2) return "";
  auto constraints = constraints_of(inputs.config);
  if (!constraints.global) return "";
  constraints.global = (*constraints.global + gpus - 1) / gpus * gpus;
  const auto list = outcomes(inputs, constraints);
  const auto best = fastest_that_fits(inputs, list);
  if (!best) return "";
  return str("nothing fits with batch.global=", *constraints_of(inputs.config).global,
             "; batch.global=", *constraints.global, " would: ", short_text(*best));
}

std::string what_would_fit(const CostInputs& inputs,
                           const std::vector<CandidateOutcome>& list) {
  if (const auto best = fastest_that_fits(inputs, list)) {
    return "what would fit: " + short_text(*best);
  }
  const auto larger = what_a_larger_batch_does(inputs);
  if (!larger.empty()) return larger;
  for (const auto& [words, optim] : smaller_optimizers(inputs.config.optim)) {
    auto config = inputs.config;
    config.optim = optim;
    const CostInputs other{config, inputs.machine, inputs.model, inputs.correction};
    if (const auto best = fastest_that_fits(other, list)) {
      return str("nothing fits on this machine with optim.name=",
                 name_of(inputs.config.optim.name), "; ", words,
                 " would: ", short_text(*best));
    }
  }
  return "nothing fits on this machine: take a smaller model or larger GPUs";
}

// Names the candidate that was requested and needs least of the host.
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
    if (p.fits() && p.candidate.offload) {
      return "activations are offloaded to host memory instead (memory.offload)";
    }
    if (p.fits()) return str("all activations fit: ", peak_text(inputs, p));
    if (!inputs.model.can_recompute()) return "the model has no blocks to checkpoint";
    if (!constraints.can_recompute) {
      return "parallel.sync_batch_norm does not allow activation checkpointing";
    }
    return str("does not save enough: with it ",
               units::format_bytes(predict(inputs, other).memory.peak()), " > ", limit);
  }
  const auto whole = predict(inputs, other);
  return whole.fits() ? "larger micro-batches gain more than recomputing costs"
                      : str("without it ", units::format_bytes(whole.memory.peak()),
                            " > ", limit);
}

std::string why_offload(const CostInputs& inputs, const Prediction& p) {
  auto other = p.candidate;
  other.offload = !other.offload;
  const auto limit = memory_limit(inputs, other).because;
  const auto peak = units::format_bytes(predict(inputs, other).memory.peak());
  if (!other.offload) return str("without it ", peak, " > ", limit);
  if (p.fits()) return "activations fit without it";
  if (!inputs.on_gpu()) return "activations are in host memory already";
  const auto lacks = host_lacks(inputs, other);
  return lacks.empty() ? str("does not save enough: with it ", peak, " > ", limit)
                       : "it " + lacks;
}

std::string rate_text(const Prediction& prediction) {
  return units::format_rate(prediction.samples_per_second) + " samples/s";
}

// Returns why the first of a list was taken. One with shards may be a little faster.
std::string why_taken(const CostInputs& inputs, const Constraints& constraints,
                      const std::vector<CandidateOutcome>& list) {
  const auto& taken = list[0].prediction;
  int fitting = 0;
  const Prediction* fastest = &taken;
  for (const auto& [prediction, lost] : list) {
    if (!prediction.fits()) continue;
    if (!barred(inputs, constraints, prediction.candidate).empty()) continue;
    if (prediction.candidate.offload && !taken.candidate.offload) continue;
    ++fitting;
    if (prediction.samples_per_second > fastest->samples_per_second) {
      fastest = &prediction;
    }
  }
  if (fitting == 0) return str("takes the least memory: ", rate_text(taken));
  const double gain = fastest->samples_per_second / taken.samples_per_second - 1;
  if (gain <= detail::kEqualSpeeds) {
    return str("the fastest of ", fitting, " that fit: ", rate_text(taken));
  }
  return str(rate_text(taken), "; of ", fitting, " that fit, ",
             name_of(fastest->candidate.method), " is ", std::round(1000 * gain) / 10,
             " % faster, too little to be worth sharding");
}

// Returns "with micro-batches of 1 and recomputing".
std::string settings_text(const Candidate& c) {
  return str("with micro-batches of ", c.micro, c.recompute ? " and recomputing" : "",
             c.offload ? ", offloaded" : "");
}

// Returns what comes of ddp over the same ranks: "fits as ddp with micro-batches of 1
// and recomputing, 31.3 % slower", or "needs 24.1 GiB a rank or more as ddp > ...".
std::string as_ddp(const CostInputs& inputs, const Prediction& taken,
                   const std::vector<CandidateOutcome>& list) {
  const Prediction* best = nullptr;
  const Prediction* least = nullptr;
  for (const auto& [one, lost] : list) {
    const auto& c = one.candidate;
    if (c.method != Method::ddp || c.ranks != taken.candidate.ranks) continue;
    if (least == nullptr || one.memory.peak() < least->memory.peak()) least = &one;
    if (!one.fits() || (c.offload && !host_lacks(inputs, c).empty())) continue;
    const bool is_better =
        best == nullptr || one.samples_per_second > best->samples_per_second;
    if (is_better) best = &one;
  }
  auto whole = taken.candidate;
  whole.method = Method::ddp;
  whole.shard_group = 0;
  const auto same = predict(inputs, whole);
  if (best == nullptr && same.fits()) best = &same;
  if (best == nullptr) {
    const auto& needs = least == nullptr ? same : *least;
    return str("needs ", units::format_bytes(needs.memory.peak()),
               " a rank or more as ddp > ", memory_limit(inputs, whole).because);
  }
  const double loss = taken.samples_per_second / best->samples_per_second - 1;
  const auto percent = std::round(1000 * std::abs(loss)) / 10;
  return str("fits as ddp ", settings_text(best->candidate),
             percent < 1 ? ", as fast"
                         : str(", ", percent, loss > 0 ? " % slower" : " % faster"));
}

// Returns "gpt2-1.5b in bf16 with adamw needs 24.1 GiB a rank or more as ddp > ...;
// stage 2 over 4 ranks needs 17.2 GiB, 3.1 GiB to spare".
std::string why_shards(const CostInputs& inputs, const Prediction& p,
                       const std::vector<CandidateOutcome>& list) {
  auto text =
      str(inputs.model.name, " in ", name_of(inputs.config.precision.mode), " with ",
          name_of(inputs.config.optim.name), " ", as_ddp(inputs, p, list), "; stage ",
          stage_of(p.candidate.method), " over ", p.candidate.sharers(), " ranks ",
          settings_text(p.candidate), " needs ", units::format_bytes(p.memory.peak()));
  if (p.limit <= 0) return text;
  return p.fits() ? str(text, ", ", units::format_bytes(p.limit - p.memory.peak()),
                        " to spare")
                  : str(text, " > ", memory_limit(inputs, p.candidate).because);
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
              " of it do not depend on the batch; ", what_would_fit(inputs, list));
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
  preference.shard_group = c.sharers();
  preference.method_because = why_taken(inputs, constraints, list);
  preference.ranks_because = preference.method_because;
  if (stage_of(c.method) > 0 && c.ranks > 1) {
    preference.shards_because = why_shards(inputs, p, list);
    preference.method_because =
        str(preference.shards_because, "; ", preference.method_because);
  }
  preference.micro = c.micro;
  preference.accumulation = c.accumulation;
  preference.batch_because =
      peak_text(inputs, p) + (p.fits() ? "" : ", and tried anyway");
  preference.micro_is_guess = true;
  preference.recompute = c.recompute;
  preference.recompute_because = why_recompute(inputs, constraints, p);
  preference.offload = c.offload;
  preference.offload_because = why_offload(inputs, p);
  return preference;
}

}  // namespace lockstep::planner
