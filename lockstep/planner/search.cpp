#include "lockstep/planner/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"

namespace lockstep::planner {
namespace {

constexpr std::array kMethods = {Method::single, Method::ddp,   Method::data_parallel,
                                 Method::zero1,  Method::zero2, Method::zero3};

bool is_cuda(const Scene& scene) {
  return scene.config.parallel.device == config::Device::cuda;
}

std::string bytes_text(double bytes) {
  return units::format_bytes(static_cast<std::int64_t>(bytes));
}

// Halves of all devices, and those in between that are powers of two.
std::set<int> rank_counts(const Scene& scene, const Asked& asked) {
  if (asked.ranks) return {*asked.ranks};
  const int devices = is_cuda(scene) ? static_cast<int>(scene.machine.gpus.size()) : 1;
  std::set<int> counts{1, std::max(1, devices)};
  for (int n = 2; n < devices; n *= 2) counts.insert(n);
  return counts;
}

std::int64_t share_of(const Scene& scene, const Asked& asked, int ranks) {
  if (asked.per_rank) return *asked.per_rank;
  if (!asked.global && asked.micro && asked.accumulation) {
    return *asked.micro * *asked.accumulation;
  }
  if (!asked.global) return usual_global(scene.config.batch, ranks) / ranks;
  return *asked.global % ranks == 0 ? *asked.global / ranks : 0;
}

// Powers of two that divide the share, and the share itself.
std::vector<std::int64_t> micro_sizes(const Asked& asked, std::int64_t share) {
  if (asked.micro) return {*asked.micro};
  if (asked.accumulation) return {share / *asked.accumulation};
  std::vector<std::int64_t> sizes{share};
  for (std::int64_t size = 1; size < share; size *= 2) {
    if (share % size == 0) sizes.push_back(size);
  }
  return sizes;
}

// Why a candidate is out of the question, whatever it would take.
std::string excluded(const Asked& asked, const Candidate& candidate) {
  if (asked.method && *asked.method != candidate.method) {
    return str(name_of(*asked.method), " was asked for");
  }
  if (!in_this_build(candidate.method)) return "not in this build";
  if (asked.threads_only && candidate.method != Method::data_parallel &&
      candidate.ranks > 1) {
    return "comm.backend local is for threads of one process";
  }
  if (asked.processes_only && candidate.method == Method::data_parallel) {
    return "comm.backend is one for processes";
  }
  if (asked.recompute && *asked.recompute != candidate.recompute) {
    return "memory.recompute_every was named";
  }
  if (asked.offload && *asked.offload != candidate.offload) {
    return "memory.offload was named";
  }
  return "";
}

// Offloaded activations are pinned: the host can not put them anywhere else.
std::string host_lacks(const Scene& scene, Candidate candidate) {
  constexpr double kOfHost = 0.5;
  candidate.offload = false;
  const double wanted = memory_cost(scene, candidate).activations * candidate.ranks;
  const auto& machine = scene.machine;
  const auto host = machine.memory_available_bytes > 0 ? machine.memory_available_bytes
                                                       : machine.memory_total_bytes;
  if (host <= 0 || wanted <= kOfHost * static_cast<double>(host)) return "";
  return str("needs ", bytes_text(wanted), " of the host > ", kOfHost, " x ",
             units::format_bytes(host));
}

// The same for all reasons that are not the device's memory.
std::string barred(const Scene& scene, const Asked& asked, const Candidate& candidate) {
  auto why = excluded(asked, candidate);
  return why.empty() && candidate.offload ? host_lacks(scene, candidate) : why;
}

struct Option {
  Method method;
  int ranks;
  std::int64_t share;
};

void add(const Scene& scene, const Asked& asked, const Option& option,
         std::vector<Outcome>& list) {
  const bool blocks = scene.model.can_recompute() && asked.can_recompute;
  const bool cuda = is_cuda(scene);
  for (const auto micro : micro_sizes(asked, option.share)) {
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
        list.push_back({predict(scene, candidate), barred(scene, asked, candidate)});
      }
    }
  }
}

// Less that could go wrong comes first among equals.
int oddity(const Candidate& candidate) {
  return (candidate.offload ? 4 : 0) + (candidate.recompute ? 2 : 0) +
         (candidate.method == Method::data_parallel ? 1 : 0);
}

bool better(const Outcome& a, const Outcome& b) {
  const auto key = [](const Outcome& o) {
    return std::tuple(!o.lost.empty(), !o.prediction.fits());
  };
  if (key(a) != key(b)) return key(a) < key(b);
  const auto& x = a.prediction;
  const auto& y = b.prediction;
  // What does not fit: the smallest first.
  if (!x.fits() && !y.fits()) return x.memory.peak() < y.memory.peak();
  // In classes, so that all are in one order whoever is compared with whom.
  const auto speed = [](const Prediction& p) {
    constexpr double kEqual = 0.001;
    return p.samples_per_second > 0
               ? std::floor(std::log(p.samples_per_second) / kEqual)
               : -1e18;
  };
  if (speed(x) != speed(y)) return speed(x) > speed(y);
  // Fewer passes through the model, but not by copies that something has to hide.
  const auto taste = [](const Candidate& c) {
    return std::tuple(c.offload, -c.micro, oddity(c));
  };
  return taste(x.candidate) < taste(y.candidate);
}

// Why those that could have been taken were not.
void say_why(const Scene& scene, std::vector<Outcome>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto& [prediction, lost] = list[i];
    if (!lost.empty()) continue;
    if (!prediction.fits()) {
      const auto limit = memory_limit(scene, prediction.candidate);
      lost = str("needs ", bytes_text(prediction.memory.peak()), " > ", limit.because);
    } else if (i > 0) {
      const double slower =
          list[0].prediction.samples_per_second / prediction.samples_per_second - 1;
      lost = slower < 0.0005
                 ? "no faster, and more can go wrong"
                 : str(std::round(1000 * std::min(slower, 1e6)) / 10, " % slower");
    }
  }
}

// The best that fits on this machine, whatever was asked for.
std::string what_would_fit(const Scene& scene, const std::vector<Outcome>& list) {
  const Prediction* best = nullptr;
  const auto rank = [](const Prediction& p) {
    return std::pair(in_this_build(p.candidate.method), p.samples_per_second);
  };
  for (const auto& [prediction, lost] : list) {
    const auto& candidate = prediction.candidate;
    if (!prediction.fits()) continue;
    if (candidate.offload && !host_lacks(scene, candidate).empty()) continue;
    if (best == nullptr || rank(prediction) > rank(*best)) best = &prediction;
  }
  if (best == nullptr) {
    return "nothing fits on this machine: take a smaller model or larger GPUs";
  }
  const auto& c = best->candidate;
  return str("what would fit: ", name_of(c.method), " over ", c.ranks,
             c.ranks == 1 ? " rank" : " ranks", " with ",
             bytes_text(best->memory.peak()), " each",
             in_this_build(c.method) ? "" : ", which this build does not have");
}

// Which of those that were asked for needs least of the host.
[[noreturn]] void refuse_offload(const Scene& scene, const Asked& asked,
                                 const std::vector<Outcome>& list) {
  const Candidate* least = nullptr;
  for (const auto& outcome : list) {
    const auto& c = outcome.prediction.candidate;
    if (!excluded(asked, c).empty()) continue;
    if (least == nullptr || c.micro * c.ranks < least->micro * least->ranks ||
        (c.recompute && !least->recompute && c.micro == least->micro)) {
      least = &c;
    }
  }
  LOCKSTEP_CHECK(least != nullptr);
  throw Error(Fault::hardware, "memory.offload: true, but ", name_of(least->method),
              " of ", scene.model.name, " over ", least->ranks,
              least->ranks == 1 ? " rank" : " ranks", " with micro-batches of ",
              least->micro, " ", host_lacks(scene, *least),
              "; lower batch.micro, or leave memory.offload auto");
}

// "predicted peak 1.2 GiB <= 0.9 x 22.5 GiB".
std::string peak_text(const Scene& scene, const Prediction& p) {
  const auto limit = memory_limit(scene, p.candidate);
  return str("predicted peak ", bytes_text(p.memory.peak()),
             limit.bytes <= 0 ? ""
             : p.fits()       ? " <= "
                              : " > ",
             limit.bytes <= 0 ? "" : limit.because);
}

std::string why_recompute(const Scene& scene, const Asked& asked, const Prediction& p) {
  auto other = p.candidate;
  other.recompute = !other.recompute;
  const auto limit = memory_limit(scene, other).because;
  if (other.recompute) {
    if (p.fits()) return str("all activations fit: ", peak_text(scene, p));
    if (!scene.model.can_recompute()) {
      return "the model has no blocks that could be computed again";
    }
    if (!asked.can_recompute) {
      return "with parallel.sync_batch_norm nothing can be computed again";
    }
    return str("does not save enough: with it ",
               bytes_text(predict(scene, other).memory.peak()), " > ", limit);
  }
  const auto whole = predict(scene, other);
  return whole.fits()
             ? "larger micro-batches are faster by more than computing again costs"
             : str("without it ", bytes_text(whole.memory.peak()), " > ", limit);
}

std::string why_offload(const Scene& scene, const Prediction& p) {
  auto other = p.candidate;
  other.offload = !other.offload;
  const auto limit = memory_limit(scene, other).because;
  const auto peak = bytes_text(predict(scene, other).memory.peak());
  if (!other.offload) return str("without it ", peak, " > ", limit);
  if (p.fits()) return "activations fit without it";
  if (!is_cuda(scene)) return "activations are in the host's memory already";
  const auto lacks = host_lacks(scene, other);
  return lacks.empty() ? str("does not save enough: with it ", peak, " > ", limit)
                       : "it " + lacks;
}

std::string rate_text(const Prediction& prediction) {
  return units::format_rate(prediction.samples_per_second) + " samples/s";
}

}  // namespace

void check_state(const Scene& scene, const Prediction& p,
                 const std::vector<Outcome>& list) {
  if (p.limit <= 0 || p.memory.state() <= p.limit) return;
  const auto& c = p.candidate;
  throw Error(Fault::hardware, "parallel.strategy: ", name_of(c.method), " of ",
              scene.model.name, " with micro-batches of ", c.micro,
              c.recompute ? " and recomputing" : "", " needs ",
              bytes_text(p.memory.peak()), " a rank > ", memory_limit(scene, c).because,
              " = ", bytes_text(p.limit), ": ", terms_of(p.memory), "; ",
              bytes_text(p.memory.state()), " of it are there whatever the batch; ",
              what_would_fit(scene, list));
}

Asked asked_of(const config::Config& config) {
  using config::Strategy;
  Asked asked;
  switch (config.parallel.strategy) {
    case Strategy::single:
      asked.method = Method::single;
      break;
    case Strategy::data_parallel:
      asked.method = Method::data_parallel;
      break;
    case Strategy::ddp:
      asked.method = Method::ddp;
      break;
    case Strategy::zero:
      asked.method = config.parallel.zero_stage == 1   ? Method::zero1
                     : config.parallel.zero_stage == 2 ? Method::zero2
                                                       : Method::zero3;
      break;
    default:
      break;
  }
  const auto take = [](const auto& knob, auto& into) {
    if (!knob.is_auto()) into = knob.value();
  };
  take(config.parallel.ranks, asked.ranks);
  if (!config.parallel.device_ids.empty()) {
    asked.ranks = static_cast<int>(config.parallel.device_ids.size());
  }
  take(config.batch.global, asked.global);
  take(config.batch.per_rank, asked.per_rank);
  take(config.batch.micro, asked.micro);
  take(config.batch.accumulation, asked.accumulation);
  take(config.memory.offload, asked.offload);
  if (!config.memory.recompute_every.is_auto()) {
    asked.recompute = config.memory.recompute_every.value() > 0;
  }
  asked.threads_only = config.comm.backend == config::CommBackend::local;
  asked.processes_only =
      !asked.threads_only && config.comm.backend != config::CommBackend::automatic;
  asked.can_recompute = !config.parallel.sync_batch_norm;
  return asked;
}

std::int64_t usual_global(const config::BatchConfig& batch, int ranks) {
  const auto at_once = ranks * batch.micro.value_or(1) * batch.accumulation.value_or(1);
  return at_once * std::max<std::int64_t>(1, config::kDefaultGlobalBatch / at_once);
}

std::vector<Outcome> outcomes(const Scene& scene, const Asked& asked) {
  std::vector<Outcome> list;
  for (const int ranks : rank_counts(scene, asked)) {
    const auto share = share_of(scene, asked, ranks);
    if (share == 0) continue;
    for (const auto method : kMethods) {
      const bool alone = method == Method::single;
      const bool named = asked.method && *asked.method == method;
      if (alone != (ranks == 1) && !named) continue;
      if (alone && ranks > 1) continue;
      add(scene, asked, {method, ranks, share}, list);
    }
  }
  std::stable_sort(list.begin(), list.end(), better);
  say_why(scene, list);
  return list;
}

Wish measured_policy(const Scene& scene, const Asked& asked,
                     const std::vector<Outcome>& list) {
  const bool any = std::any_of(list.begin(), list.end(), [&](const Outcome& o) {
    return excluded(asked, o.prediction.candidate).empty();
  });
  if (!any) return {};  // knobs that contradict each other are refused by their checks
  const auto& p = list[0].prediction;
  const auto& c = p.candidate;
  if (!barred(scene, asked, c).empty()) refuse_offload(scene, asked, list);
  check_state(scene, p, list);
  Wish wish;
  wish.method = c.method;
  wish.ranks = c.ranks;
  const auto fitting = std::count_if(list.begin(), list.end(), [&](const Outcome& o) {
    return o.prediction.fits() && barred(scene, asked, o.prediction.candidate).empty();
  });
  wish.method_because =
      fitting == 0 ? str("takes the least memory: ", rate_text(p))
                   : str("the fastest of ", fitting, " that fit: ", rate_text(p));
  wish.ranks_because = wish.method_because;
  wish.micro = c.micro;
  wish.accumulation = c.accumulation;
  wish.batch_because =
      peak_text(scene, p) + (p.fits() ? "" : ", and tried all the same");
  wish.micro_is_guess = true;
  wish.recompute = c.recompute;
  wish.recompute_because = why_recompute(scene, asked, p);
  wish.offload = c.offload;
  wish.offload_because = why_offload(scene, p);
  return wish;
}

}  // namespace lockstep::planner
