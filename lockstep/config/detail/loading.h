#pragma once

#include <map>
#include <string>
#include <string_view>

#include "lockstep/config/detail/knobs.h"
#include "lockstep/config/detail/problems.h"
#include "lockstep/config/load.h"

namespace lockstep::config::detail {

// The state of loading: the knobs point into what is being filled in.
struct Loading {
  std::map<std::string, Source>& sources;
  Knobs knobs;
  Problems problems;
  std::string file = {};  // the recipe that is being read

  Loading(std::map<std::string, Source>& where, Knobs all);

  void assign(const Knob& knob, const Node& value, Source source);
  void assign_text(const Knob& knob, std::string_view text, const Source& source);
};

// Takes the sections of a file, named `file` in errors. Throws Fault::config for a text
// that is no YAML or has no sections; all else goes to loading.problems.
void apply_text(Loading& loading, const std::string& file, std::string_view content);

void apply_override(Loading& loading, const Override& given, const Source& source);

// Returns the problem with a key that find() does not know.
std::string unknown(const Knobs& knobs, std::string_view key);

}  // namespace lockstep::config::detail
