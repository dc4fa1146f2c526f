#include "lockstep/jobs/state_directory.h"

#include "lockstep/hardware/measured_store.h"

namespace lockstep::jobs {

std::filesystem::path state_directory(const Caller& caller) {
  const std::filesystem::path named = caller.variable("XDG_STATE_HOME").value_or("");
  // A relative one is to be ignored, says the standard of these variables.
  if (named.is_absolute()) return named / "lockstep";
  const std::filesystem::path home = caller.variable("HOME").value_or("");
  if (!home.is_absolute()) return {};
  return home / ".local/state/lockstep";
}

void add_measured(hardware::Machine& machine, const Caller& caller) {
  const auto state = state_directory(caller);
  if (state.empty()) return;
  const auto problem = hardware::load_measured(machine, state);
  if (!problem.empty()) caller.warn(problem);
}

hardware::Machine known_machine(const Caller& caller,
                                const std::filesystem::path& run_directory) {
  auto machine = hardware::inspect(run_directory);
  add_measured(machine, caller);
  return machine;
}

}  // namespace lockstep::jobs
