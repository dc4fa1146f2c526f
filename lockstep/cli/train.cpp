// lockstep train RECIPE: load, plan, make the run directory, run the workers.
#include "lockstep/cli/detail/train.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/checkpoint.h"
#include "lockstep/cli/detail/finished_run.h"
#include "lockstep/cli/detail/launch.h"
#include "lockstep/cli/detail/open_run.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/plan.h"
#include "lockstep/cli/detail/state.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/hardware/json.h"
#include "lockstep/launcher/job.h"
#include "lockstep/launcher/placement.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/planner/plan.h"
#include "lockstep/storage/catalog.h"

namespace lockstep::cli {

std::filesystem::path find_worker(const Context& context) {
  auto path =
      std::filesystem::path(context.executable).parent_path() / "lockstep_worker";
  if (std::filesystem::exists(path)) return path;
  throw Error(
      Fault::hardware, "train: '", path.string(),
      "' is not there; build it (./scripts/setup.sh) or copy it beside lockstep");
}

int processes(const config::ParallelConfig& parallel) {
  const bool threads = parallel.strategy == config::Strategy::data_parallel;
  return threads ? 1 : parallel.ranks.value();
}

namespace {

// What the run was made on, for `lockstep report`.
void keep_machine(const monitor::RunDirectory& run, const hardware::Machine& machine) {
  files::write_atomically(run.machine(), hardware::to_json(machine));
}

std::chrono::milliseconds grace(const Arguments& arguments) {
  return grace_period("--grace-period", arguments.value("--grace-period"));
}

int max_restarts(const Arguments& arguments) {
  constexpr long long kMost = 1'000'000;
  return static_cast<int>(
      std::min(kMost, arguments.number("--max-restarts", 0).value_or(0)));
}

// A rank computes on the GPU of its number; replicas of one process on all of theirs.
void assign_gpus(const config::ParallelConfig& parallel,
                 std::vector<launcher::RankOptions>& ranks) {
  for (auto& rank : ranks) rank.gpus.emplace();
  if (parallel.device != config::Device::cuda) return;
  for (const int gpu : parallel.device_ids) ranks[0].gpus->push_back(gpu);
  for (int gpu = 0; parallel.device_ids.empty() && gpu < parallel.ranks.value();
       ++gpu) {
    ranks[static_cast<std::size_t>(gpu) % ranks.size()].gpus->push_back(gpu);
  }
}

// Rank 0 has the terminal to itself; what the others print goes to their logs.
std::vector<launcher::RankOptions> rank_options(
    const Arguments& arguments, const config::ParallelConfig& parallel) {
  launcher::PlaceRequest request;
  request.ranks = processes(parallel);
  request.binding =
      launcher::binding_of(arguments.value("--binding").value_or("none")).value();
  if (parallel.device == config::Device::cuda) {
    request.near_gpu = near_gpus(request.binding, request.ranks);
  }
  std::vector<launcher::RankOptions> ranks;
  for (auto& place : launcher::place_ranks(hardware::cpu_topology(), request)) {
    place.threads = parallel.threads.value();  // the plan's word, which was printed
    ranks.push_back({.place = std::move(place)});
  }
  assign_gpus(parallel, ranks);
  ranks[0].owns_terminal = true;
  return ranks;
}

launcher::Job job_of(const Arguments& arguments, Context& context,
                     const OpenedRun& opened, const planner::Plan& plan) {
  const auto& config = plan.config.config;
  const auto& run = opened.directory;
  launcher::Job job;
  for (const auto& variable : plan.environment) {
    job.environment.emplace_back(variable.name, variable.value);
  }
  job.command = {find_worker(context).string(), "--run-dir", run.path().string()};
  job.ranks = rank_options(arguments, config.parallel);
  job.first.world_size = static_cast<int>(job.ranks.size());
  job.first.job_id = run.read_record().id;
  job.first.max_restarts = max_restarts(arguments);
  job.grace = grace(arguments);
  job.hang_limits = hang_limits(config.watch);
  job.resumes = config.checkpoint.resume != "never";
  job.lost_to = [&lock = opened.lock] { return lock.lost_to(); };
  job.lock = opened.lock.descriptor();
  job.say = [&context](std::string_view sentence) {
    // On a line of its own: the worker may be in the middle of its progress line.
    context.err << "\nlockstep: " << printable(sentence) << std::endl;
  };
  if (arguments.has("--json")) job.environment.emplace_back("LOCKSTEP_RESULT", "json");
  // Off for both streams: by --no-color or a rule, not by where one of them leads.
  if (!context.color_out && !context.color_err)
    job.environment.emplace_back("NO_COLOR", "1");
  return job;
}

void report(const launcher::JobResult& result, Context& context) {
  if (result.state == monitor::RunState::failed) {
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

// The launcher does not read the recipe: what it says of watching goes by variables.
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

// Those that the plan has for its ranks, in front of their command: not every launcher
// hands down its own environment.
std::string with_variables(const planner::Plan& plan, const std::string& command) {
  if (plan.environment.empty()) return command;
  std::string text = "env ";
  for (const auto& variable : plan.environment) {
    text += str(variable.name, "=", shell_word(variable.value), " ");
  }
  return text + command;
}

// For ranks that another launcher starts.
int prepare(const planner::Plan& plan, const hardware::Machine& machine, bool take_over,
            Context& context) {
  const auto worker = find_worker(context).string();
  const auto opened =
      open_run(plan, lock_existing_run(plan.config.config, take_over, context), context,
               /*watched=*/false);
  const auto& run = opened.directory;
  keep_machine(run, machine);
  const auto path = std::filesystem::absolute(run.path()).string();
  const auto ranks = processes(plan.config.config.parallel);
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

// A checkpoint, or a run or folder that has one. Every byte of it the worker looks at.
void check_resume(const std::string& resume) {
  if (resume == "auto" || resume == "never") return;
  const std::filesystem::path path(resume);
  std::error_code ignored;
  if (std::filesystem::exists(path / storage::kManifestName, ignored)) return;
  for (const auto& folder : {path, path / "checkpoints"}) {
    if (storage::list_steps(folder).empty()) continue;
    const auto found = storage::newest_valid(folder, storage::Depth::quick);
    if (!found.path) refuse_damaged("checkpoint.resume", folder, found.skipped);
    return;
  }
  throw Error(Fault::config, "checkpoint.resume: '", resume,
              "' is no checkpoint, and none is in it; `lockstep checkpoint list RUN` "
              "shows those of a run");
}

int train(const Arguments& arguments, Context& context) {
  const auto wanted = wanted_config(arguments, context);
  check_resume(wanted.config.checkpoint.resume);
  // Refused before anything is made.
  static_cast<void>(grace(arguments));
  static_cast<void>(max_restarts(arguments));
  // A job that is stopped while it plans is started again like any other.
  std::optional<launcher::ExitOnSignals> while_planning;
  if (names_resumable_run(wanted.config)) while_planning.emplace(kExitStopped);
  const auto machine = known_machine(context, wanted.config.run.dir);
  const auto knowledge = knowledge_of(wanted, machine, context);
  const auto plan =
      planner::resolve(wanted, machine, !arguments.has("--no-auto"), knowledge);
  if (arguments.has("--dry-run")) return show_plan(plan, arguments, context);

  static_cast<void>(find_worker(context));
  if (const auto status = say_if_over(plan, arguments, context)) return *status;
  const bool take_over = arguments.has("--take-over");
  if (arguments.has("--prepare")) return prepare(plan, machine, take_over, context);
  auto lock = lock_existing_run(plan.config.config, take_over, context);
  // From here on a signal is for the run: before the directory exists, so that none is
  // left behind as "planned" by a Ctrl-C at the wrong moment.
  launcher::Signals signals;
  while_planning.reset();
  const auto opened = open_run(plan, std::move(lock), context);
  const auto& run = opened.directory;
  keep_machine(run, machine);
  if (plan.config.config.monitor.verbosity != config::Verbosity::quiet) {
    context.err << plan_text(plan, context.color_err) << "run  " << run.path().string()
                << std::endl;
  }
  const Finished finished{plan, knowledge, machine,
                          unix_seconds(Clock::system().wall())};
  const auto result = [&] {
    const WandbSync meanwhile(run.path(), plan.config.config.monitor, context);
    return launcher::run_job(run, job_of(arguments, context, opened, plan), signals);
  }();
  sync_wandb(run.path(), context);
  if (result.state == monitor::RunState::done) {
    compare_with_plan(finished, run, context);
  }
  report(result, context);
  if (!is_over(run, result.state)) {
    say_how_to_resume(plan, arguments, run, result, context);
  }
  return result.exit;
}

std::vector<Option> train_options() {
  return {
      {.name = "--ranks",
       .value = "N",
       .help = "Processes that train together (parallel.ranks)."},
      {.name = "--num-gpus",
       .value = "N",
       .help = "The same on N GPUs, one rank each; 0: on the CPU."},
      {.name = "--epochs",
       .value = "N",
       .help = "Passes over the data (train.epochs)."},
      {.name = "--batch",
       .value = "N",
       .help = "Samples of one step, over all ranks (batch.global)."},
      {.name = "--lr", .value = "RATE", .help = "Learning rate (optim.lr)."},
      {.name = "--amp",
       .help = "Compute in bf16 where that is safe (precision.mode=bf16)."},
      {.name = "--ema", .help = "Keep and evaluate an average of the weights (ema)."},
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
       .help = "The directory of this run (default: the next number in runs). One that "
               "was cut goes on.",
       .completes = Completes::directory},
      {.name = "--take-over",
       .help = "Take the run from a process of another machine that may still work on "
               "it, instead of waiting whether it does."},
      {.name = "--resume",
       .value = "auto|never|PATH",
       .help = "From the newest checkpoint, from none, or from this one.",
       .choices = {"auto", "never"},
       .free_text = true,
       .completes = Completes::directory},
      {.name = "--allow-missing",
       .value = "PATTERNS",
       .help = "Tensors that the checkpoint need not have (checkpoint.allow_missing)."},
      {.name = "--ignore",
       .value = "PATTERNS",
       .help = "Tensors of it that are left out (checkpoint.ignore)."},
      {.name = "--max-time",
       .value = "TIME",
       .help = "Save and stop after this time (train.max_time)."},
      {.name = "--debug",
       .help = "A few steps of a small batch, with verbose logs and anomaly "
               "detection; knobs set on the command line win."},
      {.name = "--no-auto",
       .help = "Take the recipe literally and refuse what it leaves `auto`."},
      {.name = "--dry-run",
       .shorthand = "-n",
       .help = "Print the plan and stop; nothing is written."},
      {.name = "--prepare",
       .help = "Make the run directory and print how to start its ranks with "
               "torchrun, srun or mpirun; they are not started here."},
      {.name = "--grace-period",
       .value = "TIME",
       .help = "How long a stop may take before the worker is killed (default: "
               "30s, at most 24h)."},
      {.name = "--binding",
       .value = "none|numa|cores",
       .help = "The CPUs that a rank may use: all, those of one NUMA node, or cores of "
               "its own (default: none).",
       .choices = {"none", "numa", "cores"}},
      {.name = "--max-restarts",
       .value = "N",
       .help = "Start all ranks again after a failure, so often (default: 0)."},
      {.name = "--quiet", .shorthand = "-q", .help = "Only the result and errors."},
      {.name = "--verbose", .shorthand = "-v", .help = "Debug lines, too."},
      {.name = "--json", .help = "The result as one JSON object."}};
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
          "stops after the current step however often it comes. Both leave a "
          "checkpoint,\n"
          "and the last lines have the command that goes on from it; the exit status "
          "is "
          "75\n"
          "after SIGTERM, for a script to start it again, and 130 after Ctrl-C. "
          "SIGUSR2 asks\n"
          "for a checkpoint only. A run that is over can be extended: the same command "
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
