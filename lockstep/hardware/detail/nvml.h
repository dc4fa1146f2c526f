#pragma once

#include "lockstep/hardware/machine.h"

namespace lockstep::hardware::detail {

// Fills the GPU fields of `machine`, or its gpu_note. The library is loaded at run
// time: a machine without one is ordinary, and so is one whose library lacks a symbol.
void add_gpus(const Path& root, Machine& machine);

}  // namespace lockstep::hardware::detail
