#pragma once

#include <string>

#include "lockstep/hardware/machine.h"

namespace lockstep::cli {

// Returns the report of `lockstep hardware`, for users; "n/a" where nothing is known.
std::string hardware_text(const hardware::Machine& machine);

// Returns one line a GPU; "" without any.
std::string gpu_table(const hardware::Machine& machine);

// Returns a reason, never "": a file of a machine need not say why.
std::string why_no_gpu(const hardware::Machine& machine);

// Returns a line for each GPU that the driver counts and that can not be used.
std::string unusable_lines(const hardware::Machine& machine);

}  // namespace lockstep::cli
