#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/units.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// A checkpoint could not be written: the disk is full, for instance.
enum class OnSaveFailure { go_on, stop };

constexpr std::array<std::string_view, 2> names_of(OnSaveFailure) {
  return {"go_on", "stop"};
}

// A checkpoint is due while the one before is still being written.
enum class OnBusy { wait, skip };

constexpr std::array<std::string_view, 2> names_of(OnBusy) {
  return {"wait", "skip"};
}

struct CheckpointConfig {
  std::int64_t every = 0;
  units::Duration interval = std::chrono::minutes(10);
  std::int64_t keep = 3;
  std::int64_t keep_best = 1;
  std::int64_t keep_every = 0;
  OnSaveFailure on_failure = OnSaveFailure::go_on;
  OnBusy on_busy = OnBusy::wait;
  bool load_best = false;
  std::string allow_missing;
  std::string ignore;
  std::string resume = "auto";  // auto, never or the path of a checkpoint
  bool save_last = true;
  bool final_weights = true;
  bool save_best = false;
};

template <typename Visitor>
void describe(CheckpointConfig& c, Visitor& v) {
  v.field("every", c.every,
          {.help = "Steps between checkpoints; 0: by checkpoint.interval only.",
           .range = count_from(0),
           .unit = Unit::steps,
           .affects = Affects::output});
  v.field("interval", c.interval,
          {.help = "Time between checkpoints, in addition to checkpoint.every; 0s: by "
                   "steps only, and when stopped.",
           .affects = Affects::output});
  v.field("keep", c.keep,
          {.help = "How many of the newest checkpoints are kept.",
           .range = count_from(1),
           .affects = Affects::output});
  v.field("keep_best", c.keep_best,
          {.help = "How many of the best checkpoints are kept, by early_stop.metric.",
           .range = count_from(0),
           .affects = Affects::output});
  v.field(
      "keep_every", c.keep_every,
      {.help =
           "Checkpoints of steps that are a multiple of this are kept, too; 0: none.",
       .range = count_from(0),
       .unit = Unit::steps,
       .affects = Affects::output});
  v.field("on_failure", c.on_failure,
          {.help = "When a checkpoint cannot be written: go_on, with the earlier ones, "
                   "or stop.",
           .affects = Affects::output});
  v.field(
      "on_busy", c.on_busy,
      {.help =
           "When a checkpoint is due while the previous one is still being written.",
       .affects = Affects::output});
  v.field(
      "load_best", c.load_best,
      {.help = "Evaluate and write the weights of the best checkpoint at the end."});
  v.field(
      "allow_missing", c.allow_missing,
      {.help =
           "When resuming from a path: tensors that may be missing in it, as patterns "
           "such as model.head.*, separated by commas. They keep their initial values.",
       .needs = "checkpoint.resume!=never or model.weights!="});
  v.field(
      "ignore", c.ignore,
      {.help = "When resuming from a path: tensors of it to ignore, as such patterns.",
       .needs = "checkpoint.resume!=never or model.weights!="});
  v.field(
      "resume", c.resume,
      {.help = "What to resume from: auto (the newest checkpoint, if there is one), "
               "never, or a path.",
       .is_local = true});
  v.field("save_last", c.save_last,
          {.help = "Save a checkpoint at the end of the run, too: it can be extended "
                   "(train.steps raised) and exported then.",
           .affects = Affects::output});
  v.field("final_weights", c.final_weights,
          {.help = "Write model.safetensors into the run directory at the end.",
           .affects = Affects::output});
  v.field("save_best", c.save_best,
          {.help = "Write best.safetensors into the run directory whenever an "
                   "evaluation is the best so far (early_stop.metric).",
           .affects = Affects::output});
}

}  // namespace lockstep::config
