#pragma once

#include <string>

namespace lockstep::cli {

// The sources and tools that this program was built with.
struct BuildInfo {
  std::string version;  // "0.1.0"
  std::string git;      // "9fceb02", "9fceb02-dirty" or "unknown"
  std::string compiler;
  std::string build_type;
};

BuildInfo build_info();

}  // namespace lockstep::cli
