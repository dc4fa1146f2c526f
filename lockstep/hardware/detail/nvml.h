#pragma once

#include <map>
#include <memory>
#include <string>

#include "lockstep/hardware/machine.h"

namespace lockstep::hardware::detail {

// Fills the GPU fields of `machine`, or its gpu_note. The library is loaded at run
// time: a machine without one is ordinary, and so is one whose library lacks a symbol.
void add_gpus(const Path& root, Machine& machine);

class UseReader {
 public:
  virtual ~UseReader() = default;
  // The share of the time, of the last moments, in which each GPU had work; by UUID.
  virtual std::map<std::string, double> busy() = 0;
};
// None where there is no NVML.
std::unique_ptr<UseReader> read_use(const Path& root);

}  // namespace lockstep::hardware::detail
