#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "lockstep/config/load.h"
#include "lockstep/service/job.h"

namespace lockstep::service {

// A recipe that came from another machine.
struct RemoteRecipe {
  std::string text;  // YAML or JSON
  // For knobs that name files: an id of an upload, or a name that the server offers, in
  // place of a path. "data.dir": "file-0123"
  std::map<std::string, std::string> inputs = {};
};

// Returns the place of an input on this machine, nothing if there is none of that name
// for the sender.
using FindInput = std::function<std::optional<std::string>(const std::string& knob,
                                                           const std::string& name)>;

struct CheckedRecipe {
  config::Loaded loaded;
  // What the server sets: the places of the inputs.
  std::vector<std::pair<std::string, std::string>> overrides;
};

// Refuses, as Refused::invalid, a recipe that is wrong, or that sets a knob which names
// a file, an address or a program (Field::is_local), however that is spelled: what
// counts is which knobs have a value after loading.
CheckedRecipe check_remote(const RemoteRecipe& recipe, const FindInput& find_input);

// Throws Refused::invalid for more ranks than there are devices for: each is a process
// with memory of its own, which it would take from the jobs of others.
void check_ranks(const config::Config& config, const Resources& resources);

}  // namespace lockstep::service
