#pragma once

#include <string>

#include "lockstep/config/field.h"

namespace lockstep::config {

struct ModelsConfig {
  std::string dir;
};

template <typename Visitor>
void describe(ModelsConfig& c, Visitor& v) {
  v.field("dir", c.dir,
          {.help = "The folder in which model.weights looks for a model by its name; "
                   "empty: lockstep/models in XDG_DATA_HOME, or in ~/.local/share.",
           .affects = Affects::output,
           .is_local = true});
}

}  // namespace lockstep::config
