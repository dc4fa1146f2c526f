#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/batch.h"

namespace lockstep::train {

// Where a run stands, beside its tensors: "state" in the manifest of a checkpoint.
struct Standing {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  data::Position position;  // of the next global batch
  double epoch = 0;
  double train_seconds = 0;
  std::int64_t skipped = 0;
  std::int64_t skipped_in_a_row = 0;
  std::int64_t evaluated_at = -1;
  std::optional<double> best_primary;  // of the task's primary metric
  std::optional<double> best;          // of early_stop
  std::int64_t waited = 0;
  std::map<std::string, double> divergence;  // of early_stop
  std::map<std::string, double> scaler, schedule;
  std::int64_t micro_batch = 0;
  std::int64_t recompute_every = 0;
  std::vector<std::string> order;  // of the parameters in memory
  std::int64_t last_step = 0;      // of the run, as it was laid out; 0: not known
  std::string ended_early;         // why, if the run has ended before that
  std::string early_stop;          // the knobs that it has ended by
  // By parameter: steps that the optimizer does not count, as nobody used it.
  std::map<std::string, std::int64_t> unused_steps;
};

std::string to_json(const Standing& standing);
// Fault::io, beginning with `place`, for what to_json() did not write.
Standing standing_from_json(std::string_view text, const std::string& place);

}  // namespace lockstep::train
