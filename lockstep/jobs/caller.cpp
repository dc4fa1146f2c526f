#include "lockstep/jobs/caller.h"

namespace lockstep::jobs {

std::optional<std::string> find_variable(const Environment& environment,
                                         std::string_view name) {
  for (const auto& [key, value] : environment) {
    if (key == name) return value;
  }
  return std::nullopt;
}

}  // namespace lockstep::jobs
