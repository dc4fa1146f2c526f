// lockstep train RECIPE: load, plan, make the run directory, run the workers.
#include "lockstep/cli/detail/train.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/finished_run.h"
#include "lockstep/cli/detail/launch.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/plan.h"
#include "lockstep/jobs/compare.h"
#include "lockstep/jobs/host_load.h"
#include "lockstep/jobs/job_options.h"
#include "lockstep/jobs/mlflow_sync.h"
#include "lockstep/jobs/open_run.h"
#include "lockstep/jobs/prepare.h"
#include "lockstep/jobs/wandb_sync.h"
#include "lockstep/jobs/worker.h"
#include "lockstep/launcher/job.h"
#include "lockstep/planner/plan.h"
#include "lockstep/run/proposed.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::cli {

namespace {

std::chrono::milliseconds grace(const Arguments& arguments) {
  return grace_period("--grace-period", arguments.value("--grace-period"));
}

int max_restarts(const Arguments& arguments) {
  constexpr long long kMost = 1'000'000;
  return static_cast<int>(
      std::min(kMost, arguments.number("--max-restarts", 0).value_or(0)));
}

jobs::StartOptions start_options(const Arguments& arguments, Context& context) {
  jobs::StartOptions options;
  options.binding =
      launcher::binding_of(arguments.value("--binding").value_or("none")).value();
  options.max_restarts = max_restarts(arguments);
  options.grace = grace(arguments);
  if (arguments.has("--json")) {
    options.environment.emplace_back("LOCKSTEP_RESULT", "json");
  }
  // Both are off: by --no-color or a rule, not by where one of them leads.
  if (!context.color_out && !context.color_err) {
    options.environment.emplace_back("NO_COLOR", "1");
  }
  options.say = [&context](std::string_view sentence) {
    // It gets a line of its own: the worker may be in the middle of its progress line.
    context.err << "\nlockstep: " << printable(sentence) << std::endl;
  };
  return options;
}

void report(const launcher::JobResult& result, Context& context) {
  if (result.state == run::RunStatus::failed) {
    print_error(context, result.message);
  } else if (!result.message.empty()) {
    context.err << "lockstep: " << printable(result.message) << "\n";
  }
}

int show_plan(const planner::Plan& plan, const Arguments& arguments, Context& context) {
  context.out << (arguments.has("--json") ? planner::to_json(plan)
                                          : plan_text(plan, context.color_out));
  return kExitOk;
}

// The launcher does not read the recipe: its `watch` section goes by variables.
std::string watch_variables(const config::Loaded& loaded) {
  std::string text;
  for (const auto& key : config::keys()) {
    const auto source = loaded.sources.find(key);
    if (!text::starts_with(key, "watch.") || source == loaded.sources.end() ||
        source->second.origin == config::Origin::standard) {
      continue;
    }
    auto name = "LOCKSTEP_WATCH_" + key.substr(std::string_view("watch.").size());
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::toupper(c); });
    text += str(name, "=", shell_word(config::get(loaded, key)), " ");
  }
  return text;
}

// Puts the plan's variables in front of the command of its ranks: not every launcher
// hands down its own environment.
std::string with_variables(const planner::Plan& plan, const std::string& command) {
  if (plan.environment.empty()) return command;
  std::string text = "env ";
  for (const auto& variable : plan.environment) {
    text += str(variable.name, "=", shell_word(variable.value), " ");
  }
  return text + command;
}

// Prepares a run for ranks that another launcher starts.
int prepare(const jobs::Prepared& prepared, bool take_over, Context& context) {
  const auto caller = caller_of(context);
  const auto& plan = prepared.plan;
  const auto worker = jobs::find_worker(caller).string();
  auto lock = jobs::lock_existing_run(plan.config.config, take_over, caller);
  const auto opened =
      jobs::open_run(plan, {.lock = std::move(lock), .watched = false}, caller);
  const auto& run = opened.directory;
  jobs::keep_machine(run, prepared.machine);
  const auto path = std::filesystem::absolute(run.path()).string();
  const auto ranks = jobs::processes(plan.config.config.parallel);
  const auto rank =
      with_variables(plan, str(shell_word(worker), " --run-dir ", shell_word(path)));
  context.out << path << "\n";
  context.err << "lockstep: the run is prepared; start its ranks with one of\n"
              << "  " << watch_variables(plan.config)
              << "lockstep launch --nproc-per-node " << ranks << " -- " << rank
              << "\n  torchrun --no-python --nproc-per-node " << ranks << " " << rank
              << "\n  srun -n " << ranks << " " << rank << "\n  mpirun -n " << ranks
              << " " << rank << "\n";
  return kExitOk;
}

void sync_wandb(const run::RunDirectory& run, Context& context) {
  const auto said = jobs::sync_wandb(run.path(), caller_of(context));
  if (!said.empty()) context.err << "wandb: " << printable(said) << "\n";
}

void say_how_right_the_plan_was(const jobs::FinishedRun& finished,
                                const run::RunDirectory& run, Context& context) {
  const auto comparison = jobs::compare_with_plan(finished, run, caller_of(context));
  const auto verbosity = finished.plan.config.config.monitor.verbosity;
  if (comparison && verbosity != config::Verbosity::quiet) {
    context.err << comparison_text(*comparison);
  }
}

int train(const Arguments& arguments, Context& context) {
  const auto wanted = wanted_config(arguments, context);
  jobs::check_resume(wanted.config.checkpoint.resume);
  auto start = start_options(arguments, context);  // refuses before it is made
  const auto caller = caller_of(context);
  // A job that is stopped while it plans is started again like any other.
  std::optional<launcher::ExitOnSignals> while_planning;
  if (jobs::names_resumable_run(wanted.config)) while_planning.emplace(kExitStopped);
  const auto prepared = jobs::prepare(wanted, !arguments.has("--no-auto"), caller);
  const auto& plan = prepared.plan;
  if (arguments.has("--dry-run")) return show_plan(plan, arguments, context);

  start.worker = jobs::find_worker(caller);
  if (const auto status = say_if_over(plan, arguments, context)) return *status;
  const bool take_over = arguments.has("--take-over");
  if (arguments.has("--prepare")) return prepare(prepared, take_over, context);
  auto lock = jobs::lock_existing_run(plan.config.config, take_over, caller);
  // From here on a signal is for the run: before the directory exists, so that none is
  // left behind as "planned" by a Ctrl-C at the wrong moment.
  launcher::Signals signals;
  while_planning.reset();
  const auto opened = jobs::open_run(plan, {.lock = std::move(lock)}, caller);
  const auto& run = opened.directory;
  jobs::keep_machine(run, prepared.machine);
  if (plan.config.config.monitor.verbosity != config::Verbosity::quiet) {
    context.err << plan_text(plan, context.color_err) << "run  " << run.path().string()
                << std::endl;
  }
  const double started = unix_seconds(Clock::system().wall());
  const jobs::OtherLoad others;
  jobs::MlflowSync mlflow(run.path(), plan.config.config.monitor, caller);
  const auto result = [&] {
    const jobs::WandbSync meanwhile(run.path(), plan.config.config.monitor, caller);
    return launcher::run_job(run, jobs::training_job(plan, opened, start), signals);
  }();
  // Nothing was trained by knobs that were refused. Whoever has taken the run over may
  // have proposed others.
  if (opened.lock.lost_to().empty()) run::take_back_proposed(run);
  sync_wandb(run, context);
  const auto unsent = mlflow.finish(result.state == run::RunStatus::failed);
  if (!unsent.empty()) context.err << "mlflow: " << printable(unsent) << "\n";
  if (result.state == run::RunStatus::done) {
    say_how_right_the_plan_was(
        {plan, prepared.knowledge, prepared.machine, started, others.share()}, run,
        context);
  }
  report(result, context);
  if (!jobs::is_over(run, result.state)) {
    say_how_to_resume({plan, arguments, run}, result, context);
  }
  return result.exit;
}

std::vector<Option> train_options() {
  return {
      {.name = "--ranks",
       .value = "N",
       .help = "Number of ranks that train together (parallel.ranks)."},
      {.name = "--num-gpus",
       .value = "N",
       .help = "Train on N GPUs, one rank each; 0: on the CPU."},
      {.name = "--epochs", .value = "N", .help = "Number of epochs (train.epochs)."},
      {.name = "--batch",
       .value = "N",
       .help = "Global batch size: samples of a step, over all ranks (batch.global)."},
      {.name = "--lr", .value = "RATE", .help = "Learning rate (optim.lr)."},
      {.name = "--amp",
       .help = "Compute in bf16 where that is safe (precision.mode=bf16)."},
      {.name = "--ema",
       .help = "Keep and evaluate an exponential moving average of the weights (ema)."},
      {.name = "--profile",
       .value = "steps=A:B",
       .help = "Time the phases of steps A to B on every rank: trace.json, for "
               "chrome://tracing or Perfetto, and a table at the end (profile.steps)."},
      {.name = "--dcgm-names",
       .help = "Prometheus: the names of NVIDIA's exporter beside ours "
               "(monitor.dcgm_names)."},
      {.name = "--find-lr",
       .refusal = "is a command of its own: lockstep find-lr RECIPE"},
      {.name = "--run-dir",
       .value = "DIR",
       .help = "The directory of this run (default: the next number in runs). An "
               "interrupted run resumes.",
       .completes = Completes::directory},
      {.name = "--take-over",
       .help = "Take over the run from a process on another machine without waiting to "
               "see whether it still runs."},
      {.name = "--resume",
       .value = "auto|never|PATH",
       .help = "What to resume from: the newest checkpoint, none, or this one.",
       .choices = {"auto", "never"},
       .free_text = true,
       .completes = Completes::directory},
      {.name = "--allow-missing",
       .value = "PATTERNS",
       .help =
           "Tensors that may be missing in the checkpoint (checkpoint.allow_missing)."},
      {.name = "--ignore",
       .value = "PATTERNS",
       .help = "Tensors of the checkpoint to ignore (checkpoint.ignore)."},
      {.name = "--max-time",
       .value = "TIME",
       .help = "Save and stop after this time (train.max_time)."},
      {.name = "--debug",
       .help = "A few steps of a small batch, with verbose logs and anomaly "
               "detection; knobs set on the command line win."},
      {.name = "--no-auto", .help = "Refuse knobs that the recipe leaves `auto`."},
      {.name = "--dry-run",
       .shorthand = "-n",
       .help = "Print the plan and exit; nothing is written."},
      {.name = "--prepare",
       .help = "Make the run directory and print how to start its ranks with "
               "torchrun, srun or mpirun; they are not started here."},
      {.name = "--grace-period",
       .value = "TIME",
       .help = "Grace period after a stop, before ranks are killed (default: 30s, at "
               "most 24h)."},
      {.name = "--binding",
       .value = "none|numa|cores",
       .help = "The CPUs that a rank may use: all, those of one NUMA node, or cores of "
               "its own (default: none).",
       .choices = {"none", "numa", "cores"}},
      {.name = "--max-restarts",
       .value = "N",
       .help = "How often all ranks are restarted after a failure (default: 0)."},
      {.name = "--quiet", .shorthand = "-q", .help = "Only the result and errors."},
      {.name = "--verbose", .shorthand = "-v", .help = "Print debug messages, too."},
      {.name = "--json", .help = "Print the result as one JSON object."}};
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
          "What the recipe leaves `auto` is chosen for this machine, and printed with "
          "the\n"
          "reason. Ctrl-C once stops after the current step, a second one at once; "
          "SIGTERM\n"
          "stops after the current step however often it comes. Both leave a "
          "checkpoint,\n"
          "and the last lines have the command that resumes from it; the exit status "
          "is 75\n"
          "after SIGTERM, for a script to start it again, and 130 after Ctrl-C. "
          "SIGUSR2 asks\n"
          "for a checkpoint only. A finished run can be extended: the same command "
          "with\n"
          "the same --run-dir and more train.steps. The result is on standard output,\n"
          "everything else on standard error.\n",
      .operands =
          {{.name = "RECIPE",
            .help = "A YAML or JSON file with the knobs of the run; -: standard input.",
            .completes = Completes::file}},
      .options = train_options(),
      .takes_overrides = true,
      .run = train};
}

}  // namespace lockstep::cli
