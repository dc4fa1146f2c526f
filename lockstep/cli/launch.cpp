// lockstep launch [options] -- PROGRAM: start any program as the ranks of a job.
#include "lockstep/cli/detail/launch.h"

#include <ostream>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/load.h"
#include "lockstep/jobs/job_options.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::cli {
namespace {

// Without --log-dir the run is made for this launch, and removed when all went well.
run::RunDirectory make_run(const LaunchOptions& options, const Context& context) {
  run::NewRun wanted{.name = "",
                     .record = run::record_of_this_process(),
                     .config_yaml = "",
                     .plan_json = ""};
  wanted.record.command = context.command_line;
  if (!options.log_dir.empty()) {
    return run::RunDirectory::create(options.log_dir, wanted);
  }
  const auto now = Clock::system().wall().time_since_epoch();
  // A directory that was kept must not be in the way of the next.
  wanted.name =
      str("lockstep-launch-", ::getpid(), "-", now / std::chrono::microseconds(1));
  const auto parent = context.variable("TMPDIR").value_or("");
  return run::RunDirectory::create(parent.empty() ? "/tmp" : parent, wanted);
}

void remove_run(const run::RunDirectory& run) {
  std::error_code ignored;  // a leftover in a temporary directory is no failure
  std::filesystem::remove_all(run.path(), ignored);
}

void report(const launcher::JobResult& result, const run::RunDirectory& run,
            Context& context) {
  if (result.state == run::RunStatus::failed) {
    print_error(context, result.message);
  } else if (!result.message.empty()) {
    context.err << "lockstep: " << printable(result.message) << "\n";
  }
  if (result.state != run::RunStatus::done) {
    context.err << "lockstep: the logs are kept in " << run.path().string() << "\n";
  }
}

int launch(const Arguments& arguments, Context& context) {
  auto options = launch_options(LaunchWords(arguments, context));
  // Reads LOCKSTEP_WATCH_STEP_FLOOR and its like. A program that uses our library may
  // beat; any other is left alone.
  const auto watch = config::defaults({}, context.environment).config.watch;
  options.job.hang_limits = jobs::hang_limits(watch);
  options.job.hang_limits->startup = std::chrono::milliseconds(0);
  if (arguments.has("--dry-run")) {
    context.out << launch_text(options);
    return kExitOk;
  }
  options.job.say = [&context](std::string_view sentence) {
    context.err << "lockstep: " << printable(sentence) << std::endl;
  };
  // From here on a signal is for the ranks: before there is anything to clean up.
  launcher::Signals signals;
  const auto run = make_run(options, context);
  if (!arguments.has("--quiet")) {
    for (const auto& note : options.notes) options.job.say(note);
    options.job.say(options.threads_line);
    if (!options.log_dir.empty()) options.job.say("run " + run.path().string());
  }
  try {
    const auto result = launcher::run_job(run, options.job, signals);
    report(result, run, context);
    const bool done = result.state == run::RunStatus::done;
    if (done && options.log_dir.empty()) remove_run(run);
    return result.exit;
  } catch (const Error&) {
    // Nothing was started, so there is nothing to look at.
    if (options.log_dir.empty()) remove_run(run);
    throw;
  }
}

std::vector<Option> node_options() {
  return {
      {.name = "--nnodes",
       .value = "N",
       .help = "Nodes that take part (default: 1); each runs the same command."},
      {.name = "--nproc-per-node",
       .value = "N|auto|gpu|cpu",
       .help = "Ranks on this node (default: 1); auto: one for each GPU, or each CPU "
               "without GPUs.",
       .choices = {"auto", "gpu", "cpu"},
       .free_text = true},
      {.name = "--node-rank",
       .value = "N",
       .help = "Rank of this node (default: from SLURM_NODEID or JOB_COMPLETION_INDEX, "
               "else 0 where --master-addr is)."},
      {.name = "--master-addr",
       .value = "HOST",
       .help = "Address of the first node, as the others reach it."},
      {.name = "--master-port",
       .value = "PORT",
       .help =
           "Port of the rendezvous (default: a free one; 29500 with several nodes)."},
      {.name = "--standalone", .help = "One node, any free port, an id of its own."},
      {.name = "--rdzv-backend",
       .value = "static|c10d",
       .help = "Both mean the same here.",
       .choices = {"static", "c10d"},
       .free_text = true},
      {.name = "--rdzv-endpoint",
       .value = "HOST:PORT",
       .help = "The same as --master-addr and --master-port (port: 29400)."},
      {.name = "--rdzv-id", .value = "ID", .help = "The name of the job."},
      {.name = "--rdzv-conf",
       .value = "KEY=VALUE,...",
       .help = "Accepted, without effect: launchers do not negotiate here."},
  };
}

std::vector<Option> rank_options() {
  return {
      {.name = "--max-restarts",
       .value = "N",
       .help = "How often all ranks are restarted after a failure (default: 0)."},
      {.name = "--monitor-interval",
       .value = "SECONDS",
       .help = "Seconds between two checks of the ranks (default: 0.1); an exit is "
               "noticed at once."},
      {.name = "--grace-period",
       .value = "TIME",
       .help = "Grace period after a stop, before ranks are killed (default: 30s, at "
               "most 24h)."},
      {.name = "--binding",
       .value = "none|numa|cores",
       .help = "The CPUs of a rank: any, those of one NUMA node (its GPU's), or cores "
               "that no other rank has (default: none).",
       .choices = {"none", "numa", "cores"}},
      {.name = "--numa-binding",
       .value = "node",
       .help = "The same as --binding numa.",
       .choices = {"node"},
       .free_text = true},
      {.name = "--role", .value = "NAME", .help = "ROLE_NAME for the ranks."},
      {.name = "--signals-to-handle",
       .value = "NAMES",
       .help = "Checked, without effect: all signals are always forwarded."},
      {.name = "--start-method",
       .value = "METHOD",
       .help = "Without effect: a program is started in one way.",
       .choices = {"spawn", "fork", "forkserver"}},
  };
}

std::vector<Option> output_options() {
  return {
      {.name = "--log-dir",
       .value = "DIR",
       .help = "Where a run directory with the logs is made (default: a temporary one, "
               "kept only after a failure).",
       .completes = Completes::directory},
      {.name = "--redirects",
       .shorthand = "-r",
       .value = "MASK",
       .help = "Streams written to the logs only: 1 stdout, 2 stderr, 3 both; per rank "
               "as 0:1,1:3."},
      {.name = "--tee",
       .shorthand = "-t",
       .value = "MASK",
       .help = "Streams of all ranks on the terminal as well as in the logs."},
      {.name = "--local-ranks-filter",
       .value = "RANKS",
       .help = "Local ranks whose output is shown on the terminal (default: 0)."},
      {.name = "--module",
       .shorthand = "-m",
       .help = "PROGRAM is a Python module: run python3 -u -m PROGRAM."},
      {.name = "--no-python",
       .help = "PROGRAM is started as it is, even if it ends in .py."},
      {.name = "--dry-run",
       .shorthand = "-n",
       .help = "Print what would be started, and exit."},
      {.name = "--quiet",
       .shorthand = "-q",
       .help = "Only what the ranks print, and errors."},
  };
}

std::vector<Option> all_options() {
  std::vector<Option> all;
  for (const auto& part :
       {node_options(), rank_options(), output_options(), foreign_options()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace

Command launch_command() {
  return {
      .name = "launch",
      .summary = "Start any program as the ranks of a job, as torchrun does.",
      .usage = "lockstep launch [options] [--] PROGRAM [arguments]...",
      .details =
          "  lockstep launch --nproc-per-node 4 -- ./my_program --epochs 3\n"
          "  lockstep launch --nproc-per-node gpu --binding numa train.py\n"
          "  lockstep launch --nnodes 2 --master-addr node0 --nproc-per-node 8 "
          "./my_program\n\n"
          "The last one on both nodes. Ranks find RANK, WORLD_SIZE, MASTER_ADDR and "
          "all "
          "the\n"
          "other variables that torchrun sets. Every option can also come from the\n"
          "environment (PET_NNODES for --nnodes); the command line wins. Ctrl-C once "
          "stops,\n"
          "a second one kills.\n",
      .operands = {{.name = "PROGRAM",
                    .help =
                        "A program, or a Python script; all that follows is its own.",
                    .completes = Completes::file}},
      .options = all_options(),
      .takes_program = true,
      .run = launch};
}

}  // namespace lockstep::cli
