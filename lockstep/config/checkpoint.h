#pragma once

#include <cstdint>
#include <string>

#include "lockstep/config/field.h"

namespace lockstep::config {

struct CheckpointConfig {
  std::int64_t every = 0;
  std::int64_t keep = 3;
  std::string resume = "auto";  // auto, never or the path of a checkpoint
  bool final_weights = true;
  bool save_best = false;
};

template <typename Visitor>
void describe(CheckpointConfig& c, Visitor& v) {
  v.field("every", c.every,
          {.help = "Steps between checkpoints; 0: none.",
           .range = count_from(0),
           .unit = Unit::steps,
           .affects = Affects::output});
  v.field("keep", c.keep,
          {.help = "How many of the newest checkpoints stay.",
           .range = count_from(1),
           .affects = Affects::output});
  v.field(
      "resume", c.resume,
      {.help = "Where to go on from: auto (the newest checkpoint, if there is one), "
               "never, or a path."});
  v.field("final_weights", c.final_weights,
          {.help = "Write model.safetensors into the run directory at the end.",
           .affects = Affects::output});
  v.field("save_best", c.save_best,
          {.help = "Write best.safetensors into the run directory at each evaluation "
                   "that is the best so far (early_stop.metric).",
           .affects = Affects::output});
}

}  // namespace lockstep::config
