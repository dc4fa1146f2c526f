// lockstep train RECIPE: load, plan, make the run directory, run the worker.
#include "lockstep/cli/detail/train.h"

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/print.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/launcher/launcher.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/planner/plan.h"

namespace lockstep::cli {
namespace {

std::filesystem::path find_worker(const Context& context) {
  auto path =
      std::filesystem::path(context.executable).parent_path() / "lockstep_worker";
  if (std::filesystem::exists(path)) return path;
  throw Error(
      Fault::hardware, "train: '", path.string(),
      "' is not there; build it (./scripts/setup.sh) or copy it beside lockstep");
}

monitor::RunDirectory make_run(const planner::Plan& plan, const Context& context) {
  const auto& run = plan.config.config.run;
  monitor::NewRun wanted{.name = run.name,
                         .record = monitor::record_of_this_process(),
                         .config_yaml = config::to_yaml(plan.config, true),
                         .plan_json = planner::to_json(plan)};
  wanted.record.recipe = plan.config.recipe;
  wanted.record.command = context.command_line;
  return monitor::RunDirectory::create(run.dir, wanted);
}

std::chrono::milliseconds grace_period(const Arguments& arguments) {
  const auto given = arguments.value("--grace-period");
  if (!given) return launcher::kGracePeriod;
  const auto period = units::parse_duration(*given);
  if (!period || period->count() <= 0) {
    throw Error(Fault::config, "--grace-period: '", *given,
                "' is not a time above zero; write 30s or 2min");
  }
  if (*period > launcher::kLongestGracePeriod) {
    throw Error(Fault::config, "--grace-period: '", *given, "' is more than ",
                launcher::kLongestGracePeriod.count(), "h; write 24h or less");
  }
  return *period;
}

launcher::WorkerCommand worker_command(const Arguments& arguments, Context& context,
                                       const monitor::RunDirectory& run) {
  launcher::WorkerCommand command;
  command.program = find_worker(context);
  command.arguments = {"--run-dir", run.path().string()};
  command.grace = grace_period(arguments);
  command.say = [&context](std::string_view sentence) {
    // On a line of its own: the worker may be in the middle of its progress line.
    context.err << "\nlockstep: " << printable(sentence) << std::endl;
  };
  if (arguments.has("--json"))
    command.environment.emplace_back("LOCKSTEP_RESULT", "json");
  // Off for both streams: by --no-color or a rule, not by where one of them leads.
  if (!context.color_out && !context.color_err)
    command.environment.emplace_back("NO_COLOR", "1");
  return command;
}

int report(const launcher::RunResult& result, const monitor::RunDirectory& run,
           Context& context) {
  if (result.state == monitor::RunState::failed) {
    print_error(context, result.message);
  } else if (!result.message.empty()) {
    context.err << "lockstep: " << printable(result.message) << "\n";
  }
  if (result.state != monitor::RunState::done) {
    context.err << "lockstep: the run is kept in " << run.path().string() << "\n";
  }
  return result.exit;
}

int show_plan(const planner::Plan& plan, const Arguments& arguments, Context& context) {
  context.out << (arguments.has("--json") ? planner::to_json(plan)
                                          : plan_text(plan, context.color_out));
  return kExitOk;
}

int train(const Arguments& arguments, Context& context) {
  const auto wanted = wanted_config(arguments, context);
  static_cast<void>(grace_period(arguments));  // refused before anything is made
  const auto plan =
      planner::resolve(wanted, hardware::detect(), !arguments.has("--no-auto"));
  if (arguments.has("--dry-run")) return show_plan(plan, arguments, context);

  static_cast<void>(find_worker(context));
  // From here on a signal is for the run: before the directory exists, so that none is
  // left behind as "planned" by a Ctrl-C at the wrong moment.
  launcher::Signals signals;
  const auto run = make_run(plan, context);
  if (plan.config.config.monitor.verbosity != config::Verbosity::quiet) {
    context.err << plan_text(plan, context.color_err) << "run  " << run.path().string()
                << std::endl;
  }
  const auto result =
      launcher::run_worker(run, worker_command(arguments, context, run), signals);
  return report(result, run, context);
}

}  // namespace

Command train_command() {
  return {
      .name = "train",
      .summary = "Train a model as a recipe says.",
      .usage = "lockstep train RECIPE [options] [section.key=value]...",
      .details =
          "  lockstep train recipes/fashion_mnist.yaml\n"
          "  lockstep train recipes/fashion_mnist.yaml optim.lr=3e-4 train.epochs=2\n"
          "  lockstep train recipes/fashion_mnist.yaml --debug\n\n"
          "What the recipe leaves open is chosen for this machine, and printed with "
          "the\n"
          "reason. Ctrl-C once stops after the current step, a second one at once; "
          "SIGTERM\n"
          "stops after the current step however often it comes. The result is on "
          "standard\n"
          "output, everything else on standard error.\n",
      .operands =
          {{.name = "RECIPE",
            .help = "A YAML or JSON file with the knobs of the run; -: standard input.",
            .completes = Completes::file}},
      .options =
          {{.name = "--ranks",
            .value = "N",
            .help = "Processes that train together (parallel.ranks)."},
           {.name = "--num-gpus",
            .value = "N",
            .help = "The same on N GPUs, one rank each; 0: on the CPU."},
           {.name = "--run-dir",
            .value = "DIR",
            .help =
                "The directory of this run; it must not exist yet (default: the next "
                "number in runs).",
            .completes = Completes::directory},
           {.name = "--resume",
            .value = "auto|never|PATH",
            .help = "From the newest checkpoint, from none, or from this one.",
            .choices = {"auto", "never"},
            .free_text = true,
            .completes = Completes::directory},
           {.name = "--debug",
            .help = "A few steps of a small batch, with verbose logs and anomaly "
                    "detection; knobs set on the command line win."},
           {.name = "--no-auto",
            .help = "Take the recipe literally and refuse what it leaves `auto`."},
           {.name = "--dry-run",
            .shorthand = "-n",
            .help = "Print the plan and stop; nothing is written."},
           {.name = "--grace-period",
            .value = "TIME",
            .help = "How long a stop may take before the worker is killed (default: "
                    "30s, at most 24h)."},
           {.name = "--quiet",
            .shorthand = "-q",
            .help = "Only the result and errors."},
           {.name = "--verbose", .shorthand = "-v", .help = "Debug lines, too."},
           {.name = "--json", .help = "The result as one JSON object."}},
      .takes_overrides = true,
      .run = train};
}

}  // namespace lockstep::cli
