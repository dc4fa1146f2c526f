#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/memory/device_memory.h"
#include "lockstep/run/field.h"

namespace lockstep::train {

// The sums of one rank over the steps since the last report.
struct RankWindow {
  double data_wait_seconds = 0;
  double compute_seconds = 0;  // from the start of a step to its last gradient
  double exchange_wait_seconds = 0;
  double forward_seconds = 0;  // 0 on a GPU, where nothing waits to measure it
  double backward_seconds = 0;
  std::int64_t samples = 0;
  memory::DeviceMemory memory;
};

// The way of a number of a window to metrics.jsonl and, from there, to every sink,
// `top` and the report. Its unit and its help are in monitor/catalogue.cpp.
struct WindowMetric {
  enum class OverRanks { first, mean, largest, sum };
  enum class When { always, known, several_ranks };  // known: it is not 0

  std::string_view name = "";  // "": it is not written
  OverRanks over = OverRanks::first;
  bool per_step = false;
  When when = When::always;
};

// The only list of the numbers of a window: ranks exchange them in one collective and
// metrics follow. A new one is a member and a line here, and a line in the catalogue.
template <typename Visitor>
void describe(RankWindow& w, Visitor& v) {
  using Over = WindowMetric::OverRanks;
  using When = WindowMetric::When;
  v.number(w.data_wait_seconds, {"data_wait_seconds"});
  v.number(w.memory.allocated_bytes, {"memory_bytes"});
  v.number(w.memory.reserved_bytes, {"memory_reserved_bytes"});
  v.number(w.memory.peak_bytes, {"memory_peak_bytes"});
  v.number(w.memory.total_bytes, {});
  v.number(w.forward_seconds, {"forward_seconds", Over::mean, true, When::known});
  v.number(w.backward_seconds, {"backward_seconds", Over::mean, true, When::known});
  v.number(w.exchange_wait_seconds,
           {"exchange_wait_seconds", Over::first, false, When::several_ranks});
  v.number(w.compute_seconds, {});
  v.number(w.samples, {});
}

// Returns the windows of all ranks, by rank. Collective.
std::vector<RankWindow> gather(const RankWindow& own, comm::Communicator& cpu);

// Returns the fields of metrics.jsonl for the windows of all ranks over so many steps.
std::vector<run::NamedValue> fields_of(const std::vector<RankWindow>& ranks,
                                       std::int64_t steps);

// The rank that the others waited for.
struct Straggler {
  int rank = 0;
  double late_seconds = 0;  // in all of the window, against the mean of the others
  std::string cause;        // "data wait" or "compute"
};

// Returns the rank whose gradients were the last to be ready; none for a single rank.
std::optional<Straggler> find_straggler(const std::vector<RankWindow>& ranks);

}  // namespace lockstep::train
