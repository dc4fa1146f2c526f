#pragma once

#include "lockstep/monitor/run_directory.h"

namespace lockstep::monitor::detail {

// Reads what to_json(RunRecord) wrote. Throws Fault::io, naming `place`, on damage, and
// Fault::config on a newer format.
RunRecord parse_record(const std::string& json, const std::string& place);

}  // namespace lockstep::monitor::detail
