#pragma once

#include <array>
#include <string>
#include <string_view>

#include "lockstep/base/units.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// `nccl_or_gloo` and `shm_or_gloo` are decided when the ranks meet, which shows whether
// the first is usable on all of them.
enum class CommBackend { automatic, gloo, nccl, nccl_or_gloo, shm, shm_or_gloo, local };

constexpr std::array<std::string_view, 7> names_of(CommBackend) {
  return {"auto", "gloo", "nccl", "nccl_or_gloo", "shm", "shm_or_gloo", "local"};
}

struct CommConfig {
  CommBackend backend = CommBackend::automatic;
  units::Duration timeout = std::chrono::minutes(10);
  units::Duration join_timeout = std::chrono::minutes(5);
  std::string interface;
  bool deterministic = false;
  bool debug = false;
};

template <typename Visitor>
void describe(CommConfig& c, Visitor& v) {
  v.field("backend", c.backend,
          {.help = "Who moves tensors between ranks. auto: shm_or_gloo on CPUs (shm: "
                   "memory that the ranks of one machine share), nccl_or_gloo on GPUs; "
                   "these fall back where the first is not usable, and say why. local: "
                   "ranks are threads of one process (data_parallel).",
           .affects = Affects::speed});
  v.field("timeout", c.timeout,
          {.help = "How long a rank waits for its peers in a collective.",
           .affects = Affects::speed});
  v.field("join_timeout", c.join_timeout,
          {.help = "How long ranks wait for each other at the start.",
           .affects = Affects::speed});
  v.field("interface", c.interface,
          {.help = "The network interface or address that ranks use between nodes; "
                   "empty: the one that leads to the master.",
           .affects = Affects::speed});
  v.field("deterministic", c.deterministic,
          {.help = "Sum gradients in the order of the ranks, whatever the backend and "
                   "the buckets: the same bits everywhere; slower from 3 ranks on over "
                   "gloo and nccl, which sum in an order of their own."});
  v.field("debug", c.debug,
          {.help = "Check before every collective that all ranks issue the same one; "
                   "slow.",
           .affects = Affects::speed});
}

}  // namespace lockstep::config
