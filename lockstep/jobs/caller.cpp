#include "lockstep/jobs/caller.h"

namespace lockstep::jobs {

std::optional<std::string> Caller::variable(std::string_view name) const {
  for (const auto& [key, value] : environment) {
    if (key == name) return value;
  }
  return std::nullopt;
}

}  // namespace lockstep::jobs
