#include "lockstep/planner/policies.h"

#include <array>

#include "lockstep/base/str.h"
#include "lockstep/base/units.h"

namespace lockstep::planner {
namespace {

constexpr std::int64_t kGigabyte = 1'000'000'000;

constexpr std::array kTable = {
    TableRow{20 * kGigabyte, 16, 4},
    TableRow{14 * kGigabyte, 12, 5},
    TableRow{10 * kGigabyte, 8, 8},
    TableRow{6 * kGigabyte, 4, 16},
    TableRow{0, 2, 32},
};

Preference take(Method method, std::string because) {
  Preference preference;
  preference.method = method;
  preference.method_because = std::move(because);
  if (method == Method::single) {
    preference.ranks = 1;
    preference.ranks_because = preference.method_because;
  }
  return preference;
}

}  // namespace

Preference simple_policy(const Facts& facts) {
  constexpr int kMostThreads = 4;
  if (facts.devices == 0) return take(Method::single, "policy simple: no GPU");
  if (facts.devices == 1) return take(Method::single, "policy simple: 1 GPU");
  if (facts.devices <= kMostThreads) {
    return take(Method::data_parallel,
                str("policy simple: ", facts.devices, " GPUs <= ", kMostThreads));
  }
  return take(Method::ddp,
              str("policy simple: ", facts.devices, " GPUs > ", kMostThreads));
}

Preference flags_policy(const Facts& facts) {
  if (facts.devices == 0) return take(Method::single, "policy flags: no GPU");
  if (facts.devices == 1) return take(Method::single, "policy flags: 1 GPU");
  const auto gpus = str("policy flags: ", facts.devices, " GPUs, ");
  if (facts.knobs.enable_distributed) {
    return take(Method::ddp, gpus + "planner.enable_distributed");
  }
  if (facts.knobs.enable_data_parallel) {
    return take(Method::data_parallel, gpus + "planner.enable_data_parallel");
  }
  return take(Method::single, gpus +
                                  "but neither planner.enable_distributed nor "
                                  "planner.enable_data_parallel");
}

Preference zero2_policy(const Facts& facts) {
  if (facts.devices == 0) return take(Method::single, "policy zero2: no GPU");
  if (facts.devices == 1) return take(Method::single, "policy zero2: 1 GPU");
  return take(Method::zero2, str("policy zero2: ", facts.devices, " GPUs"));
}

TableRow table_row(std::int64_t memory_bytes) {
  for (const auto& row : kTable) {
    if (memory_bytes >= row.least_bytes) return row;
  }
  return kTable.back();
}

Preference table_policy(const Facts& facts) {
  auto preference = zero2_policy(facts);
  if (facts.devices == 0 || facts.memory_bytes == 0) return preference;
  const auto row = table_row(facts.memory_bytes);
  const auto has =
      str("policy table: a GPU has ", units::format_bytes(facts.memory_bytes), " ");
  preference.micro = row.micro;
  preference.accumulation = row.accumulation;
  preference.batch_because =
      row.least_bytes > 0 ? str(has, ">= ", row.least_bytes / kGigabyte,
                                " GB: ", row.micro, " x ", row.accumulation)
                          : str(has, "< 6 GB: ", row.micro, " x ", row.accumulation);
  if (facts.can_recompute) {
    preference.recompute = true;
    preference.recompute_because =
        "policy table: activation checkpointing saves memory";
  }
  return preference;
}

double usual_speed_up(int ranks) {
  switch (ranks) {
    case 2:
      return 1.9;
    case 4:
      return 3.5;
    case 8:
      return 6.5;
    default:
      return 0;
  }
}

}  // namespace lockstep::planner
