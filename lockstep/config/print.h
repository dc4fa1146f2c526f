#pragma once

#include <string>

#include "lockstep/config/load.h"

namespace lockstep::config {

// Every knob as YAML that loads back to the same values, doubles to the same bits. With
// sources, a comment behind each says where it came from.
std::string to_yaml(const Loaded& loaded, bool with_sources);

// {"optim": {"lr": {"value": 0.001, "source": "default", "where": ""}, ...}, ...}
std::string to_json(const Loaded& loaded);

// For people: one aligned line for each knob with its value and its source.
std::string to_table(const Loaded& loaded);

// docs/reference/config.md.
std::string reference_markdown();

// The same for programs:
// {"knobs": [{"key": "optim.lr", "type": "number", "default": 0.001, "choices": [],
//             "range": "above 0", "affects": "results", "help": "..."}, ...]}
std::string reference_json();

}  // namespace lockstep::config
