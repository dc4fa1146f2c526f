// lockstep hardware: the machine as a report, and the settings that fit it.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/hardware_text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"
#include "lockstep/cli/detail/train.h"
#include "lockstep/hardware/json.h"
#include "lockstep/planner/plan.h"

namespace lockstep::cli {
namespace {

hardware::Machine machine_of(const Arguments& arguments, const Context& context) {
  if (const auto file = arguments.value("--from")) return hardware::load(*file);
  return hardware::inspect(default_run_dir(context));
}

int report(const Arguments& arguments, Context& context) {
  const auto machine = machine_of(arguments, context);
  if (arguments.has("--json")) {
    context.out << hardware::to_json(machine);
    return kExitOk;
  }
  context.out << printable(hardware_text(machine));
  // The environment sets knobs, too: these are what `train` would start from.
  const auto plan = planner::resolve(config::defaults({}, context.environment), machine,
                                     /*allow_auto=*/true);
  context.out << "\nsettings of a recipe that leaves everything auto:\n"
              << plan_text(plan, context.color_out);
  return kExitOk;
}

}  // namespace

Command hardware_command() {
  return {.name = "hardware",
          .summary = "Report GPUs, links, CPU, memory, and the settings that fit them.",
          .usage = "lockstep hardware [--json] [--from FILE]",
          .details =
              "n/a is what the driver or the device does not tell. No CUDA context is "
              "made.\n",
          .options = {{.name = "--json",
                       .help = "One JSON object, which --from reads back "
                               "(docs/hardware.md)."},
                      {.name = "--from",
                       .value = "FILE",
                       .help = "A machine from such a file instead of this one.",
                       .completes = Completes::file}},
          .run = report};
}

}  // namespace lockstep::cli
