#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/units.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// `nccl_or_gloo` and `shm_or_gloo` are decided when the ranks meet, which shows whether
// the first is usable on all of them.
enum class CommBackend {
  automatic,
  gloo,
  nccl,
  nccl_or_gloo,
  shm,
  shm_or_gloo,
  local,
  modelled
};

// The backends between processes, the fastest first: X(name) is
// comm::detail::name_backend(). `local` is between threads, `modelled` between ranks
// that do not exist.
#define LOCKSTEP_BACKENDS(X) \
  X(nccl)                    \
  X(shm)                     \
  X(gloo)

constexpr std::array<std::string_view, 8> names_of(CommBackend) {
  return {"auto", "gloo",        "nccl",  "nccl_or_gloo",
          "shm",  "shm_or_gloo", "local", "modelled"};
}

struct CommConfig {
  CommBackend backend = CommBackend::automatic;
  units::Duration timeout = std::chrono::minutes(10);
  units::Duration join_timeout = std::chrono::minutes(5);
  std::string interface;
  bool deterministic = false;
  bool debug = false;
  std::int64_t modelled_ranks = 8;
  double modelled_latency_us = 20;
  std::int64_t modelled_bandwidth = 12'500'000'000;
  bool modelled_busy = false;
};

template <typename Visitor>
void describe(CommConfig& c, Visitor& v) {
  v.field(
      "backend", c.backend,
      {.help =
           "The communication backend between ranks. auto: shm_or_gloo on CPUs (shm: "
           "memory that the ranks of one machine share), nccl_or_gloo on GPUs; these "
           "fall back where the first is not usable, and say why. local: ranks are "
           "threads of one process (data_parallel). modelled: none; one process acts "
           "as rank 0 of a simulated network that only takes time, for benchmarks.",
       .affects = Affects::speed,
       .needs = kPeers});
  v.field("timeout", c.timeout,
          {.help = "Timeout of a collective.",
           .affects = Affects::speed,
           .needs = "parallel.ranks>1"});
  v.field("join_timeout", c.join_timeout,
          {.help = "Timeout of the rendezvous at the start.",
           .affects = Affects::speed,
           .needs = "parallel.ranks>1 and comm.backend!=local"});
  v.field("interface", c.interface,
          {.help = "The network interface or address for traffic between nodes; empty: "
                   "the one with the route to MASTER_ADDR.",
           .affects = Affects::speed,
           .needs = "parallel.ranks>1 and comm.backend!=local",
           .is_local = true});
  v.field("deterministic", c.deterministic,
          {.help = "Sum gradients in the order of the ranks, whatever the backend and "
                   "the buckets: the same bits everywhere; slower from 3 ranks on over "
                   "gloo and nccl, which sum in an order of their own.",
           .needs = kPeers});
  v.field("debug", c.debug,
          {.help = "Check before every collective that all ranks issue the same one "
                   "(as TORCH_DISTRIBUTED_DEBUG=DETAIL); slow.",
           .affects = Affects::speed,
           .needs = "parallel.ranks>1"});
  v.field("modelled_ranks", c.modelled_ranks,
          {.help = "Ranks of the modelled network.",
           .range = between(1, 1'000'000),
           .affects = Affects::speed,
           .needs = "comm.backend=modelled"});
  v.field("modelled_latency_us", c.modelled_latency_us,
          {.help = "Latency of a message in the modelled network, in microseconds.",
           .range = at_least(0),
           .affects = Affects::speed,
           .needs = "comm.backend=modelled"});
  v.field("modelled_bandwidth", c.modelled_bandwidth,
          {.help = "Bandwidth of a rank in the modelled network, in bytes a second.",
           .range = at_least(1),
           .unit = Unit::bytes,
           .affects = Affects::speed,
           .needs = "comm.backend=modelled"});
  v.field("modelled_busy", c.modelled_busy,
          {.help = "On CPUs: modelled transfers use the core, as those of gloo and shm "
                   "do, instead of only taking time.",
           .affects = Affects::speed,
           .needs = "comm.backend=modelled and parallel.device=cpu"});
}

}  // namespace lockstep::config
