// lockstep hardware: the machine as a report, and the settings that fit it.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/hardware_text.h"
#include "lockstep/cli/detail/measure.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"
#include "lockstep/cli/detail/train.h"
#include "lockstep/hardware/json.h"
#include "lockstep/jobs/knowledge.h"
#include "lockstep/jobs/state_directory.h"
#include "lockstep/planner/plan.h"

namespace lockstep::cli {
namespace {

hardware::Machine chosen_machine(const Arguments& arguments, Context& context) {
  if (const auto file = arguments.value("--from")) return hardware::load(*file);
  auto machine = hardware::inspect(default_run_dir(context));
  jobs::add_measured(machine, caller_of(context));
  return machine;
}

int report(const Arguments& arguments, Context& context) {
  for (const auto* option : {"--quick", "--no-store", "--time-limit"}) {
    if (!arguments.has(option)) continue;
    throw Error(Fault::config, option,
                ": is of `lockstep hardware bench`; add bench, or leave it out");
  }
  const auto machine = chosen_machine(arguments, context);
  if (arguments.has("--json")) {
    context.out << hardware::to_json(machine);
    return kExitOk;
  }
  context.out << printable(hardware_text(machine));
  if (machine.measured) {
    context.out << "\n" << printable(measured_text(machine, *machine.measured));
  }
  // The environment sets knobs, too: these are what `train` would start from.
  planner::Knowledge knowledge;
  if (!arguments.has("--from"))
    knowledge.set_variables = jobs::set_variables(caller_of(context));
  const auto plan =
      planner::resolve(config::defaults({}, context.environment), machine, knowledge);
  context.out << "\nsettings of a recipe that leaves everything auto:\n"
              << plan_text(plan, context.color_out);
  return kExitOk;
}

int run_hardware(const Arguments& arguments, Context& context) {
  if (!arguments.operand("ACTION")) return report(arguments, context);
  if (arguments.has("--from")) {
    throw Error(Fault::config,
                "hardware bench: --from is a file, and only this machine can be "
                "measured; leave it out");
  }
  return bench_hardware(arguments, context);
}

}  // namespace

Command hardware_command() {
  return {
      .name = "hardware",
      .summary = "Report GPUs, links, CPU, memory, and the settings that fit them.",
      .usage =
          "lockstep hardware [--json] [--from FILE]\n"
          "       lockstep hardware bench [--json] [--quick] [--no-store]",
      .details =
          "n/a: not reported by the driver or the device. No CUDA context is made.\n\n"
          "bench measures: copies within and to GPUs, between each two of them (which "
          "are also\n"
          "checked: some machines lose data there, or hang), all-reduce, products of "
          "matrices,\n"
          "the memory of the host. The result is kept for this machine; plans use it. "
          "GPUs that\n"
          "are slower than their equals are named. Exit status: 0 all was measured, 1 "
          "not all, or\n"
          "a pair is broken.\n",
      .operands = {{.name = "ACTION",
                    .help = "bench: measure this machine.",
                    .required = false,
                    .choices = {"bench"}}},
      .options = {{.name = "--json",
                   .help =
                       "One JSON object; that of the report is what --from reads back "
                       "(docs/hardware.md)."},
                  {.name = "--from",
                   .value = "FILE",
                   .help =
                       "Report the machine that such a file describes, not this one.",
                   .completes = Completes::file},
                  {.name = "--quick", .help = "bench: rougher numbers in seconds."},
                  {.name = "--no-store", .help = "bench: do not keep the result."},
                  {.name = "--time-limit",
                   .value = "S",
                   .help = "bench: timeout of each part in seconds (default: 120)."}},
      .run = run_hardware};
}

}  // namespace lockstep::cli
