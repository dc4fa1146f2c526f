#include "lockstep/cli/detail/build_info.h"

#include "git_version.h"  // written by the build

#include "lockstep/base/version.h"

namespace lockstep::cli {

BuildInfo build_info() {
#if defined(__clang__)
  const std::string compiler = "Clang " __clang_version__;
#else
  const std::string compiler = "GCC " __VERSION__;
#endif
  return {.version = std::string(version()),
          .git = LOCKSTEP_GIT,
          .compiler = compiler,
          .build_type = LOCKSTEP_BUILD_TYPE};
}

}  // namespace lockstep::cli
