#pragma once

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/config/load.h"
#include "lockstep/monitor/error_file.h"
#include "lockstep/monitor/run_directory.h"

// What the program lockstep_worker and its library liblockstep_worker.so agree on.
namespace lockstep {

// The program reads recipes for the library: distributions ship yaml-cpp's archive
// without position-independent code, which a program can link in and a shared library
// can not.
using ConfigLoader = config::Loaded (*)(const std::filesystem::path&);

using WorkerMain = int (*)(int argc, char** argv, ConfigLoader load);

// Leaves the error in the run directory, where the launcher finds it and says it;
// without a launcher of ours, or without a run directory, it is said here. Returns the
// status to exit with.
inline int report(const std::string& run_dir, Fault fault, const std::string& message) {
  std::string said = std::getenv("LOCKSTEP_LAUNCHER") == nullptr ? message : "";
  try {
    if (run_dir.empty()) throw Error(Fault::config, "there is no run directory");
    monitor::write_error(monitor::RunDirectory::open(run_dir).error(0),
                         {.fault = fault, .message = message, .rank = 0});
  } catch (const std::exception&) {
    said = message;
  }
  if (!said.empty()) std::cerr << "lockstep_worker: error: " << said << std::endl;
  return exit_status(fault);
}

}  // namespace lockstep
