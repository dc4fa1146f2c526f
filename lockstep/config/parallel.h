#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lockstep/config/auto.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class Strategy { automatic, single, data_parallel, ddp, zero };

constexpr std::array<std::string_view, 5> names_of(Strategy) {
  return {"auto", "single", "data_parallel", "ddp", "zero"};
}

enum class Device { automatic, cpu, cuda };

constexpr std::array<std::string_view, 3> names_of(Device) {
  return {"auto", "cpu", "cuda"};
}

// What happens when the ranks of a run can not be set up.
enum class OnSetupFailure { automatic, stop, single };

constexpr std::array<std::string_view, 3> names_of(OnSetupFailure) {
  return {"auto", "stop", "single"};
}

struct ParallelConfig {
  Strategy strategy = Strategy::automatic;
  Auto<int> ranks;
  int zero_stage = 1;
  std::int64_t bucket_bytes = 25 << 20;
  Device device = Device::automatic;
  Auto<int> threads;
  OnSetupFailure on_setup_failure = OnSetupFailure::automatic;
};

template <typename Visitor>
void describe(ParallelConfig& c, Visitor& v) {
  v.field(
      "strategy", c.strategy,
      {.help = "How the model is spread over the ranks.", .affects = Affects::speed});
  v.field("ranks", c.ranks,
          {.help = "Processes that train together, one for each device.",
           .range = between(1, 1024),
           .affects = Affects::speed});
  v.field("zero_stage", c.zero_stage,
          {.help = "What zero shards: 1 optimizer, 2 and gradients, 3 and parameters.",
           .range = between(1, 3),
           .affects = Affects::speed});
  v.field("bucket_bytes", c.bucket_bytes,
          {.help = "Gradient bytes that are sent in one collective.",
           .range = between(1, 1099511627776.0),
           .unit = Unit::bytes,
           .affects = Affects::speed});
  v.field("device", c.device,
          {.help = "Where the model computes.", .affects = Affects::speed});
  v.field(
      "threads", c.threads,
      {.help = "CPU threads inside an operation. Sums are split by it: the last bits "
               "of the results depend on it.",
       .range = between(1, 1024),
       .unit = Unit::threads,
       .affects = Affects::speed});
  v.field("on_setup_failure", c.on_setup_failure,
          {.help = "When ranks can not find each other: stop, or go on with a single "
                   "one. auto: stop if ranks or a strategy were asked for by name."});
}

}  // namespace lockstep::config
