#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/config/field.h"

namespace lockstep::config {

struct RunConfig {
  std::string dir = "runs";
  std::string name;  // "": the next free number, 0001, 0002, ...
  std::vector<std::string> tags;
  std::uint64_t seed = 42;
};

template <typename Visitor>
void describe(RunConfig& c, Visitor& v) {
  v.field("dir", c.dir,
          {.help = "Folder in which each run gets its own run directory.",
           .affects = Affects::output,
           .is_local = true});
  v.field("name", c.name,
          {.help = "Name of the run directory; empty: the next free number.",
           .affects = Affects::output});
  v.field(
      "tags", c.tags,
      {.help = "Tags of the run (lockstep runs --tag).", .affects = Affects::output});
  v.field("seed", c.seed,
          {.help = "Seed of the weights, the sample order and dropout."});
}

}  // namespace lockstep::config
