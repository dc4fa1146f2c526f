#pragma once

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/config/load.h"
#include "lockstep/run/error_file.h"
#include "lockstep/run/rank_environment.h"
#include "lockstep/run/run_directory.h"

// The interface of the program lockstep_worker and liblockstep_worker.so.
namespace lockstep {

// The program reads recipes for the library: distributions ship yaml-cpp's archive
// without position-independent code, which a program can link in and a shared library
// can not. An empty path means the defaults and the environment's knobs.
using ConfigLoader = config::Loaded (*)(const std::filesystem::path&);

using WorkerMain = int (*)(int argc, char** argv, ConfigLoader load);

// Returns the rank of this process, as far as it can be told; 0 if not.
inline int own_rank() noexcept {
  try {
    return run::detect(run::process_variables()).rank;
  } catch (const std::exception&) {
    return 0;
  }
}

// Leaves the error where the launcher of this rank looks for it: in the run directory,
// and in torchrun's error file. Without a launcher of ours it is printed here. When it
// can not be left, on a full disk for instance, it is logged: the last block of a log
// that is there already may have room, and our launcher looks there. Returns the status
// to exit with.
inline int report(const std::string& run_dir, Fault fault, const std::string& message) {
  const char* named = std::getenv("TORCHELASTIC_ERROR_FILE");
  bool left = false;
  try {
    const run::RankError error{.fault = fault, .message = message, .rank = own_rank()};
    if (named != nullptr && *named != '\0') {
      run::write_error(named, error);
      left = true;
    }
    if (!run_dir.empty()) {
      run::write_error(run::RunDirectory::open(run_dir).error(error.rank), error);
      left = true;
    }
  } catch (const std::exception&) {
    // The error is printed below, unless one of the two was written.
  }
  const bool ours = std::getenv("LOCKSTEP_LAUNCHER") != nullptr;
  if (!left && ours && !run_dir.empty()) {
    log::error("train", message);
  } else if (!left || !ours) {
    std::cerr << "lockstep_worker: error: " << message << std::endl;
  }
  return exit_status(fault);
}

}  // namespace lockstep
