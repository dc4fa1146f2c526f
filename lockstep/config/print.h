#pragma once

#include <string>

#include "lockstep/config/load.h"

namespace lockstep::config {

// Returns every knob as YAML that loads back to the same values, doubles to the same
// bits. With sources, a comment behind each names its source.
std::string to_yaml(const Loaded& loaded, bool with_sources);

// Returns {"optim": {"lr": {"value": 0.001, "source": "default", "where": ""}, ...},
// ...}
std::string to_json(const Loaded& loaded);

// Returns one aligned line for each knob with its value and its source, for users.
std::string to_table(const Loaded& loaded);

// Returns what one knob is set to and where, its type, its values and what it does; of
// a section, that of all its knobs. Throws Fault::config, with a suggestion, if there
// is no such knob.
std::string explain(const Loaded& loaded, std::string_view key);

// Returns the text of docs/reference/config.md.
std::string reference_markdown();

// Returns the reference for programs: {"knobs": [{"key": "optim.lr", "type": "number",
// "default": 0.001, "choices": [],
//             "range": "above 0", "affects": "results", "help": "..."}, ...]}
std::string reference_json();

}  // namespace lockstep::config
