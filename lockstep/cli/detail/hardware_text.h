#pragma once

#include <string>

#include "lockstep/hardware/machine.h"

namespace lockstep::cli {

// The report of `lockstep hardware`, for people; "n/a" where nothing is known.
std::string hardware_text(const hardware::Machine& machine);

// One line a GPU; "" without any.
std::string gpu_table(const hardware::Machine& machine);

// Never "": a file of a machine need not say why.
std::string why_no_gpu(const hardware::Machine& machine);

// A line for each that the driver counts and that can not be used.
std::string unusable_lines(const hardware::Machine& machine);

}  // namespace lockstep::cli
