#include "lockstep/run/state_directory.h"

#include <cstdlib>

namespace lockstep::run {
namespace {

// A relative one is to be ignored, says the standard of these variables.
std::filesystem::path absolute_variable(const char* name) {
  const char* value = std::getenv(name);
  const std::filesystem::path path = value == nullptr ? "" : value;
  return path.is_absolute() ? path : std::filesystem::path();
}

}  // namespace

std::filesystem::path state_directory() {
  if (const auto state = absolute_variable("XDG_STATE_HOME"); !state.empty()) {
    return state / "lockstep";
  }
  const auto home = absolute_variable("HOME");
  return home.empty() ? home : home / ".local/state/lockstep";
}

}  // namespace lockstep::run
