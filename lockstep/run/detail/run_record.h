#pragma once

#include "lockstep/run/run_directory.h"

namespace lockstep::run::detail {

// Reads what to_json(RunRecord) wrote. Throws Fault::io, naming `place`, on damage, and
// Fault::config on a newer format.
RunRecord parse_record(const std::string& json, const std::string& place);

}  // namespace lockstep::run::detail
