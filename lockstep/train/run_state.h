#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/batch.h"

namespace lockstep::train {

// The position of a run, beside its tensors: "state" in the manifest of a checkpoint.
struct RunState {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  data::Position position;  // of the next global batch
  double epoch = 0;         // of the data, with its fraction
  double train_seconds = 0;
  std::int64_t skipped = 0;
  std::int64_t skipped_in_a_row = 0;
  std::int64_t evaluated_at = -1;      // step
  std::string primary;                 // the task's metric; "": not known
  std::optional<double> best_primary;  // of it
  std::optional<double> best;          // of early_stop
  std::int64_t waited = 0;
  std::map<std::string, double> divergence;  // of early_stop
  std::string ended_early;     // why, if the run has ended before last_step
  std::string early_stop;      // the knobs that it has ended by
  std::int64_t last_step = 0;  // of the run, as it was laid out; 0: not known
  std::map<std::string, double> scaler, schedule;
  std::int64_t micro_batch = 0;
  std::int64_t recompute_every = 0;
  std::vector<std::string> order;  // of the parameters in memory
  // Counts, by parameter, the steps in which it was unused: the optimizer skips those.
  std::map<std::string, std::int64_t> unused_steps;
  std::string base_weights;  // digest of those under adapters, which are not saved
};

// The rules for reading a field of an earlier version.
struct StateField {
  bool may_be_missing = false;     // it keeps its default then
  std::string_view formerly = "";  // the name that it had
};

// The only list of what a run resumes with, by its place in the JSON: writing and
// reading are visitors. A new number is one line here, with may_be_missing.
template <typename Visitor>
void describe(RunState& s, Visitor& v) {
  constexpr StateField kNew{.may_be_missing = true};
  v.field("steps", s.steps);
  v.field("samples", s.samples);
  v.field("position.epoch", s.position.epoch);
  v.field("position.consumed", s.position.consumed);
  v.field("epoch", s.epoch);
  v.field("train_seconds", s.train_seconds);
  v.field("skipped", s.skipped);
  v.field("skipped_in_a_row", s.skipped_in_a_row);
  v.field("evaluated_at", s.evaluated_at);
  v.field("primary", s.primary, kNew);
  v.field("best_primary", s.best_primary, {.formerly = "best_accuracy"});
  v.field("early_stop.best", s.best);
  v.field("early_stop.waited", s.waited);
  v.field("early_stop.divergence", s.divergence, kNew);
  v.field("early_stop.ended", s.ended_early, kNew);
  v.field("early_stop.knobs", s.early_stop, kNew);
  v.field("last_step", s.last_step, kNew);
  v.field("loss_scale", s.scaler);
  v.field("schedule", s.schedule);
  v.field("micro_batch", s.micro_batch);
  v.field("recompute_every", s.recompute_every);
  v.field("order", s.order);
  v.field("unused_steps", s.unused_steps, kNew);
  v.field("base_weights", s.base_weights, kNew);
}

std::string to_json(const RunState& state);
// Throws Fault::io, beginning with `place`, for text that to_json() did not write.
RunState run_state_from_json(std::string_view text, const std::string& place);

}  // namespace lockstep::train
