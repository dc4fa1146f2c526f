#include "lockstep/launcher/spawn.h"

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/run/error_file.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::launcher {
namespace {

// "PID" for a rank of the process PID, "PID called" once it has called its function. A
// program that a rank starts inherits the variable, but has another parent.
constexpr char kVariable[] = "LOCKSTEP_SPAWN";

constexpr std::int64_t kLongestCommandLine = 16 << 20;

bool is_rank(const std::string& state) {
  return state == std::to_string(::getppid());
}

bool has_called(const std::string& state) {
  return state == str(::getppid(), " called");
}

int fail(const run::RankEnvironment& rank, const Error& error, int status) {
  if (rank.error_file.empty()) return status;
  try {
    run::write_error(
        rank.error_file,
        {.fault = error.fault(), .message = error.what(), .rank = rank.rank});
  } catch (const Error&) {
    // The disk may be full: the status still says what kind of failure it is.
  }
  return status;
}

int call(const std::function<void(const run::RankEnvironment&)>& function) {
  ::setenv(kVariable, str(::getppid(), " called").c_str(), 1);
  const auto rank = run::detect(run::process_variables());
  try {
    function(rank);
    return kExitOk;
  } catch (const Error& error) {
    return fail(rank, error, exit_status(error.fault()));
  } catch (const std::exception& error) {
    return fail(rank, Error(Fault::internal, error.what()), kExitFailed);
  } catch (...) {
    const Error error(
        Fault::internal,
        "spawn: the function threw something that is not a std::exception");
    return fail(rank, error, kExitFailed);
  }
}

// Returns this program and its arguments, as they were typed.
std::vector<std::string> this_command() {
  auto arguments =
      text::split(files::read("/proc/self/cmdline", kLongestCommandLine), '\0');
  arguments.pop_back();  // behind the last one's end
  // argv[0] is not used: it may be a name that is looked for on PATH, or anything.
  const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
  if (arguments.empty()) return {program};
  arguments[0] = program;
  return arguments;
}

void say_to_standard_error(std::string_view sentence) {
  const auto line = str("lockstep: ", sentence, "\n");
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // no reader
}

Job make_job(int world_size, const SpawnOptions& options) {
  Job job;
  job.command = this_command();
  job.environment = options.environment;
  job.environment.emplace_back(kVariable, std::to_string(::getpid()));
  job.first.by = run::StartedBy::lockstep;
  job.first.world_size = job.first.local_world_size = world_size;
  job.first.max_restarts = options.max_restarts;
  const auto places = place_ranks(hardware::cpu_topology(),
                                  {.ranks = world_size, .binding = options.binding});
  for (const auto& place : places) {
    job.ranks.push_back({.place = place, .console = options.console});
  }
  job.grace = options.grace;
  job.say = options.say ? options.say : say_to_standard_error;
  job.show = options.show;
  return job;
}

run::RunDirectory make_directory(const Job& job, const files::Path& parent) {
  auto record = run::record_of_this_process();
  record.command = text::join(job.command, " ");
  if (!parent.empty()) {
    return run::RunDirectory::create(parent, {.name = "", .record = record});
  }
  // A directory that is kept after a failure must not be in the way of the next.
  const auto name =
      str("lockstep-spawn-", ::getpid(), "-",
          Clock::system().wall().time_since_epoch() / std::chrono::microseconds(1));
  return run::RunDirectory::create(std::filesystem::temp_directory_path(),
                                   {.name = name, .record = record});
}

int run_ranks(const Job& job, const files::Path& parent) {
  const auto run = make_directory(job, parent);
  Signals signals;
  const auto result = run_job(run, job, signals);
  if (result.state == run::RunStatus::done) {
    std::error_code ignored;
    if (parent.empty()) std::filesystem::remove_all(run.path(), ignored);
  } else {
    job.say(str(result.message, "\nits logs are in ", run.path().string()));
  }
  return result.exit;
}

}  // namespace

int spawn(int world_size,
          const std::function<void(const run::RankEnvironment&)>& function,
          const SpawnOptions& options) {
  const auto variables = run::process_variables();
  const auto found = variables.find(kVariable);
  const auto state = found == variables.end() ? "" : found->second;
  if (is_rank(state)) return call(function);
  if (has_called(state)) {
    throw Error(Fault::config,
                "spawn: a rank has called spawn() a second time; write `return "
                "spawn(...)`, since it returns in the ranks too");
  }
  if (world_size < 1) {
    throw Error(Fault::config, "spawn: ", world_size,
                " ranks are not possible; ask for 1 or more");
  }
  return run_ranks(make_job(world_size, options), options.directory);
}

}  // namespace lockstep::launcher
