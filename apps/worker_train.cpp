// lockstep_worker --run-dir DIR: one rank of a training run.
#include "apps/worker_train.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "lockstep/base/hash.h"
#include "lockstep/base/library_error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/join.h"
#include "lockstep/config/decisions.h"
#include "lockstep/launcher/job.h"
#include "lockstep/launcher/parent_watch.h"
#include "lockstep/monitor/console.h"
#include "lockstep/run/exit_status.h"
#include "lockstep/run/host.h"
#include "lockstep/run/proposed.h"
#include "lockstep/run/run_lock.h"
#include "lockstep/train/device.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/report.h"
#include "lockstep/train/stop.h"
#include "lockstep/train/trainer.h"

namespace lockstep {
namespace {

using run::RankEnvironment;
using Traced = std::optional<run::TraceRequest>;

std::optional<std::string> variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Returns the level that is shown; the file of the run keeps everything.
log::Level level_of(config::Verbosity verbosity) {
  switch (verbosity) {
    case config::Verbosity::quiet:
      return log::Level::error;
    case config::Verbosity::debug:
      return log::Level::debug;
    default:
      return log::Level::warning;
  }
}

// Returns whether our launcher has made the directory for just this job, and looks
// after it. Any other one, a prepared one say, may be another job's now.
bool is_launchers_own(const run::RunDirectory& run) {
  return run::launcher_heartbeat() == std::filesystem::absolute(run.heartbeat());
}

// The files that this rank may leave in the run directory: its log and its errors.
// There are none before it is known that the run is this job's; rank 0 knows when it
// has the lock, the others when they have met rank 0.
//
// Log lines go to the console while that lives, and to standard error afterwards.
class Traces {
 public:
  struct Options {
    int rank = 0;
    config::Verbosity verbosity = config::Verbosity::normal;
  };
  Traces(const run::RunDirectory& run, const Options& options,
         monitor::Console& console)
      : run_(run), console_(console) {
    const int rank = options.rank;
    // Our launcher writes what this rank prints to the same file: all goes there.
    const bool captured = variable("LOCKSTEP_LOG_FILE") ==
                          std::filesystem::absolute(run.log(rank)).string();
    if (!captured) file_ = run.log(rank);
    options_ = {.level = log::Level::debug,
                .shown = captured ? log::Level::debug : level_of(options.verbosity),
                .file = {},
                .writer = [&](log::Level level, std::string_view line) {
                  console.log_line(level, line);
                }};
    log::start(options_);
    log::set_rank(rank);
    if (is_launchers_own(run)) allow();
  }
  Traces(const Traces&) = delete;
  Traces& operator=(const Traces&) = delete;
  ~Traces() { log::set_writer({}); }

  bool are_allowed() const noexcept { return allowed_; }
  void allow() {
    if (allowed_.exchange(true)) return;
    options_.file = file_;
    log::start(options_);
  }

  monitor::Console& console() const noexcept { return console_; }

  // Returns the directory for report(); "" as long as nothing may be left.
  std::string error_place() const { return allowed_ ? run_.path().string() : ""; }

 private:
  const run::RunDirectory& run_;
  monitor::Console& console_;
  std::filesystem::path file_;
  log::Options options_;
  std::atomic<bool> allowed_{false};  // the watch for the parent asks, too
};

// What a rank is started with.
struct RankJob {
  const run::RunDirectory& run;
  const config::Config& config;
  const RankEnvironment& environment;
  const train::StopRequest& stop;
  const Traced& trace;
};

comm::JoinOptions join_options(const RankJob& job, int local_rank) {
  constexpr std::int64_t kLongestConfig = 1 << 20;
  const auto text = files::read(job.run.config(), kLongestConfig);
  return {.config = job.config.comm,
          .device = train::choose_device(job.config.parallel, local_rank),
          .facts = {{"config", fmt::format("{:016x}", hash_of(text))}},
          .interrupted = [&stop = job.stop] { return stop.signal() != 0; }};
}

// Our launcher keeps the run.json of the directory that it has made; of any other, a
// prepared one for instance, and under a launcher of others, only rank 0 does.
class Record {
 public:
  Record(const run::RunDirectory& run, const RankEnvironment& environment,
         const train::StopRequest& stop)
      : run_(run) {
    if (environment.rank != 0 || is_launchers_own(run)) return;
    run::LockOptions options;
    options.interrupted = [&stop] { return stop.signal() != 0; };
    options.say = [](std::string_view text) {
      log::warning("comm", std::string(text));
    };
    options.on_lost = [](const std::string& owner) {
      const auto why = "the run was taken over by " + owner;
      log::error("comm", why);
      ::_exit(report("", Fault::comm, why));
    };
    lock_.emplace(run::RunLock::take(run.path(), options));
    run_.claim();
  }

  // Says how it ended; returns the exit status.
  int done(const train::Result& result) const {
    const int signal = result.stopped_by;
    const int exit = result.exit;
    if (!is_ours()) return exit;
    run_.update_record({signal != 0 ? run::RunStatus::stopped : run::RunStatus::done,
                        exit, signal != 0 ? process::signal_name(signal) : ""});
    return exit;
  }
  void failed(Fault fault, const std::string& message) const noexcept {
    if (!is_ours()) return;
    try {
      run::take_back_proposed(run_);
      run_.update_record({run::RunStatus::failed, shell_status(fault), message});
    } catch (const std::exception&) {
      // The error itself is what has to be said.
    }
  }

 private:
  bool is_ours() const { return lock_ && lock_->lost_to().empty(); }

  const run::RunDirectory& run_;
  std::optional<run::RunLock> lock_;
};

// Returns the world of the run; or, if it can not be set up and the config says so,
// rank 0 alone, and nothing for the others.
std::optional<comm::World> meet(const RankJob& job) {
  const auto& environment = job.environment;
  const bool alone_is_fine =
      job.config.parallel.on_setup_failure == config::OnSetupFailure::single;
  try {
    return comm::join(environment, join_options(job, environment.local_rank));
  } catch (const Error& error) {
    const bool can_help = error.fault() == Fault::comm ||
                          error.fault() == Fault::hardware ||
                          error.fault() == Fault::io;
    const bool told = job.stop.signal() != 0;
    if (!alone_is_fine || !can_help || told || environment.world_size == 1) throw;
    log::warning("comm",
                 fmt::format("{}; {} (parallel.on_setup_failure=single)", error.what(),
                             environment.rank == 0 ? "rank 0 continues alone"
                                                   : "left to rank 0"));
  }
  if (environment.rank != 0) return std::nullopt;
  return comm::join({}, join_options(job, RankEnvironment().local_rank));
}

// Returns false if it could not be written, which it prints: the run itself is done.
bool show(const train::Result& result) {
  const bool json = variable("LOCKSTEP_RESULT") == "json";
  // A reporter has printed that there was nothing to do; a program wants an answer.
  if (!result.already_over.empty() && !json) return true;
  errno = 0;
  try {
    fmt::print("{}", json ? train::to_json(result) + "\n" : train::to_table(result));
  } catch (const std::system_error& error) {  // fmt's, of a stream that fails at once
    errno = error.code().value();
  }
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  if (errno == EPIPE) return true;
  // Standard error may be as full, and that changes nothing either.
  const auto line = fmt::format(
      "lockstep_worker: error: cannot write the result to standard output: {}; the run "
      "itself is done\n",
      std::strerror(errno));
  std::fputs(line.c_str(), stderr);
  return false;
}

// `stopped`: by which signal, and with which exit status.
int leave_early(train::Result stopped, std::optional<train::Reporter>& reporter,
                const Record& record) {
  log::warning("comm", fmt::format("stopped by {} before all ranks had joined",
                                   process::signal_name(stopped.stopped_by)));
  if (reporter) reporter->finished(stopped);
  return record.done(stopped);
}

int leave(const train::Result& result, const Record& record, bool shown) {
  const int status = record.done(result);
  return status == kExitOk && !shown ? launcher::kExitUnprinted : status;
}

// Returns SLURM_JOB_END_TIME, which Slurm gives in seconds.
std::optional<WallTime> end_of_job() {
  const auto text = variable("SLURM_JOB_END_TIME");
  const auto seconds = text ? text::to_integer(*text) : std::nullopt;
  if (!seconds || *seconds <= 0) return std::nullopt;
  return WallTime(std::chrono::seconds(*seconds));
}

// Trains with data_parallel: the ranks are threads of this process.
int train_threads(const RankJob& job, const Record& record, monitor::Console& console) {
  const auto& [run, config, environment, stop, trace] = job;
  if (environment.world_size > 1) {
    throw Error(Fault::config, "parallel.strategy: data_parallel is one process, but ",
                environment.world_size,
                " were started; start one, or set parallel.strategy=ddp");
  }
  const auto result = train::train_replicas(
      config::Resolved(config),
      {run, train::choose_devices(config.parallel), console, stop},
      {.job_end = end_of_job(), .restarts = environment.restart_count, .trace = trace});
  const bool shown = show(result);
  return leave(result, record, shown);
}

// Returns the GPUs of all ranks of this machine: the first samples for the others.
std::vector<int> gpus_here(const config::ParallelConfig& parallel,
                           const RankEnvironment& environment) {
  if (parallel.device != config::Device::cuda) return {};
  std::vector<int> gpus(static_cast<std::size_t>(environment.local_world_size));
  std::iota(gpus.begin(), gpus.end(), 0);
  return gpus;
}

// Returns nothing if they can not meet, and the config or a signal says what to do.
std::optional<comm::World> try_to_meet(const RankJob& job) {
  try {
    return meet(job);
  } catch (const Error&) {
    if (job.stop.signal() == 0) throw;
    return std::nullopt;
  }
}

// Trains as one process of several.
int train_as(const RankJob& job, const Record& record, Traces& traces) {
  const auto& [run, config, environment, stop, trace] = job;
  std::optional<train::Reporter> reporter;
  const auto begin_to_report = [&] {
    traces.allow();
    reporter.emplace(
        train::Reporter::Outputs{job.run, traces.console()}, job.config.monitor,
        train::Reporter::Who{.rank = job.environment.rank,
                             .ranks = job.environment.world_size,
                             .gpus = gpus_here(job.config.parallel, job.environment)});
    log::info("comm", run::describe(job.environment));
  };
  if (traces.are_allowed()) begin_to_report();
  if (!environment.note.empty()) log::warning("comm", environment.note);
  auto world = try_to_meet(job);
  if (const int signal = stop.signal(); !world && signal != 0) {
    train::Result stopped;
    stopped.stopped_by = signal;
    stopped.exit = run::exit_of_stop(run, config::resumes(config.checkpoint), signal);
    return leave_early(std::move(stopped), reporter, record);
  }
  if (!world) {
    if (reporter) reporter->beat(0, run::Phase::finished);
    return kExitOk;
  }
  if (!reporter) begin_to_report();
  if (!world->note().empty()) log::warning("comm", world->note());
  const auto result = train::train(
      config::Resolved(config), {run, *reporter, stop, *world},
      {.job_end = end_of_job(), .restarts = environment.restart_count, .trace = trace});
  const bool shown = world->rank() != 0 || show(result);
  world->close();
  return leave(result, record, shown);
}

// Ends this rank when the launcher has; ranks that a user starts by hand may outlive
// the shell.
std::optional<launcher::ParentWatch> watch_launcher(const RankEnvironment& environment,
                                                    const Traces& traces) {
  const bool by_hand =
      environment.by == run::StartedBy::torchrun && environment.job_id.empty();
  if (environment.by == run::StartedBy::single || by_hand) return std::nullopt;
  return std::optional<launcher::ParentWatch>(std::in_place, [&traces] {
    const std::string why = "the launcher of this rank has ended";
    log::error("comm", why);
    ::_exit(report(traces.error_place(), Fault::comm, why));
  });
}

int leave_waiting(int signal, const run::RunDirectory& run,
                  const config::Config& config) {
  log::warning("comm", fmt::format("stopped by {} while it waited for the run's lock",
                                   process::signal_name(signal)));
  return run::exit_of_stop(run, config::resumes(config.checkpoint), signal);
}

}  // namespace

int run_training(const TrainingRequest& request, ConfigLoader load,
                 const train::StopRequest& stop) {
  const auto& run = request.run;
  const auto loaded = load(run.config());
  const auto& config = loaded.config;
  const auto environment = run::detect(run::process_variables());
  monitor::Console console(monitor::standard_error_options(variable));
  Traces traces(run, {.rank = environment.rank, .verbosity = config.monitor.verbosity},
                console);
  const RankJob job{run, config, environment, stop, request.trace};
  const auto watch = watch_launcher(environment, traces);
  std::optional<Record> kept;
  try {
    kept.emplace(run, environment, stop);
  } catch (const Error& error) {
    if (const int signal = stop.signal()) return leave_waiting(signal, run, config);
    // The run belongs to another job: nothing is left in its directory.
    return report("", error.fault(), error.what());
  }
  const auto& record = *kept;
  if (environment.rank == 0) traces.allow();
  try {
    // Our launcher has done so.
    if (environment.by != run::StartedBy::lockstep) {
      run::check_host(environment);
    }
    if (config.parallel.strategy == config::Strategy::data_parallel) {
      return train_threads(job, record, console);
    }
    return train_as(job, record, traces);
  } catch (const Error& error) {
    record.failed(error.fault(), error.what());
    if (!traces.are_allowed()) return report("", error.fault(), error.what());
    throw;
  } catch (const std::exception& error) {
    record.failed(Fault::internal, without_frames(error));
    if (!traces.are_allowed()) {
      return report("", Fault::internal, str("internal: ", without_frames(error)));
    }
    throw;
  }
}

}  // namespace lockstep
