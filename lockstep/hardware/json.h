#pragma once

#include <string>

#include "lockstep/hardware/gpu_check.h"
#include "lockstep/hardware/machine.h"

// The machine as one JSON object: docs/hardware.md. It can be made on one machine, or
// by hand, and planned for on another.
namespace lockstep::hardware {

// The value of "format" in it. A reader refuses a newer one.
inline constexpr int kMachineFormat = 1;

// Writes every field by its name in machine.h and gpu.h; null where nothing is known.
std::string to_json(const Machine& machine);

// Reads a machine. Fields that are left out keep their defaults; numbers of bytes may
// be text ("80GB"). GPUs that give no index are counted. A wrong type or an unknown
// name is Fault::config and names its place: "gpus[1].memory_total_bytes". `origin` is
// the file, for errors.
Machine from_json(const std::string& text, const std::string& origin);

Machine load(const Path& path);

// Write and read parts of it in the same way: the measurements of a machine, and the
// test results of a GPU. A rank that measures hands its part over like this.
std::string to_json(const Measured& measured);
Measured measured_from_json(const std::string& text, const std::string& origin);

std::string to_json(const GpuCheck& check);
GpuCheck gpu_check_from_json(const std::string& text, const std::string& origin);

}  // namespace lockstep::hardware
