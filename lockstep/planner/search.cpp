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
        auto why = excluded(asked, candidate);
        if (why.empty() && offload) why = host_lacks(scene, candidate);
        list.push_back({predict(scene, candidate), std::move(why)});
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
  return oddity(x.candidate) < oddity(y.candidate);
}

// Why those that could have been taken were not.
void say_why(const Scene& scene, std::vector<Outcome>& list) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    auto& [prediction, lost] = list[i];
    if (!lost.empty()) continue;
    if (!prediction.fits()) {
      const auto limit = memory_limit(scene, prediction.candidate.ranks);
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

[[noreturn]] void refuse(const Scene& scene, const Asked& asked,
                         const std::vector<Outcome>& list) {
  const Outcome* least = nullptr;  // of those that may be taken
  const Outcome* other = nullptr;  // that would fit
  for (const auto& outcome : list) {
    const auto& candidate = outcome.prediction.candidate;
    const bool allowed = excluded(asked, candidate).empty();
    const double peak = outcome.prediction.memory.peak();
    if (allowed && (least == nullptr || peak < least->prediction.memory.peak())) {
      least = &outcome;
    }
    if (allowed || !outcome.prediction.fits()) continue;
    const auto rank = [](const Outcome& o) {
      return std::pair(in_this_build(o.prediction.candidate.method),
                       o.prediction.samples_per_second);
    };
    if (other == nullptr || rank(outcome) > rank(*other)) other = &outcome;
  }
  LOCKSTEP_CHECK(least != nullptr, "there is nothing that could be done");
  const auto& p = least->prediction;
  const auto& c = p.candidate;
  const auto hint =
      other == nullptr
          ? str("; nothing fits on this machine: take a smaller model or larger GPUs")
          : str("; what would fit: ", name_of(other->prediction.candidate.method),
                " over ", other->prediction.candidate.ranks, " ranks with ",
                bytes_text(other->prediction.memory.peak()), " each",
                in_this_build(other->prediction.candidate.method)
                    ? ""
                    : ", which this build does not have");
  throw Error(Fault::hardware, "parallel.strategy: ", name_of(c.method), " of ",
              scene.model.name, " with micro-batches of ", c.micro,
              c.recompute ? " and recomputing" : "", " needs ",
              bytes_text(p.memory.peak()), " a rank > ",
              memory_limit(scene, c.ranks).because, " = ", bytes_text(p.limit), ": ",
              terms_of(p.memory), hint);
}

std::string rate_text(const Prediction& prediction) {
  return units::format_rate(prediction.samples_per_second) + " samples/s";
}

}  // namespace

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
  const auto& best = list[0];
  const auto& p = best.prediction;
  const bool certain = p.memory.state() > p.limit;
  if (!best.lost.empty() && certain) refuse(scene, asked, list);
  const auto& c = p.candidate;
  Wish wish;
  wish.method = c.method;
  wish.ranks = c.ranks;
  const auto fitting = std::count_if(list.begin(), list.end(), [&](const Outcome& o) {
    return o.prediction.fits() && excluded(asked, o.prediction.candidate).empty();
  });
  wish.method_because =
      fitting == 0 ? str("takes the least memory: ", rate_text(p))
                   : str("the fastest of ", fitting, " that fit: ", rate_text(p));
  wish.ranks_because = wish.method_because;
  const auto limit = memory_limit(scene, c.ranks);
  const auto peak =
      str("predicted peak ", bytes_text(p.memory.peak()),
          !p.fits()         ? str(" > ", limit.because, ", and tried all the same")
          : limit.bytes > 0 ? str(" <= ", limit.because)
                            : std::string());
  wish.micro = c.micro;
  wish.accumulation = c.accumulation;
  wish.batch_because = peak;
  wish.micro_is_guess = true;
  wish.recompute = c.recompute;
  wish.offload = c.offload;
  auto without = c;
  without.recompute = false;
  const auto whole = predict(scene, without);
  wish.recompute_because =
      !c.recompute ? str("all activations fit: ", peak)
      : !whole.fits()
          ? str("without it ", bytes_text(whole.memory.peak()), " > ", limit.because)
          : "larger micro-batches are faster by more than computing again costs";
  without = c;
  without.offload = false;
  wish.offload_because =
      c.offload ? str("without it ", bytes_text(predict(scene, without).memory.peak()),
                      " > ", limit.because)
                : "activations fit without it";
  return wish;
}

}  // namespace lockstep::planner
