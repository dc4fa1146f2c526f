#include "lockstep/cli/detail/state.h"

#include <ostream>

#include "lockstep/cli/detail/output.h"
#include "lockstep/hardware/measured_store.h"

namespace lockstep::cli {

std::filesystem::path state_directory(const Context& context) {
  const std::filesystem::path named = context.variable("XDG_STATE_HOME").value_or("");
  // A relative one is to be ignored, says the standard of these variables.
  if (named.is_absolute()) return named / "lockstep";
  const std::filesystem::path home = context.variable("HOME").value_or("");
  if (!home.is_absolute()) return {};
  return home / ".local/state/lockstep";
}

void add_measured(hardware::Machine& machine, Context& context) {
  const auto state = state_directory(context);
  if (state.empty()) return;
  const auto problem = hardware::load_measured(machine, state);
  if (problem.empty()) return;
  context.err << "lockstep: " << toned("warning:", Tone::yellow, context.color_err)
              << " " << printable(problem) << "\n";
}

hardware::Machine known_machine(Context& context,
                                const std::filesystem::path& run_directory) {
  auto machine = hardware::inspect(run_directory);
  add_measured(machine, context);
  return machine;
}

}  // namespace lockstep::cli
