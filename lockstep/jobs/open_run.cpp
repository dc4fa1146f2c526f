#include "lockstep/jobs/open_run.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/config/decisions.h"
#include "lockstep/config/print.h"
#include "lockstep/hardware/json.h"
#include "lockstep/run/events.h"
#include "lockstep/run/proposed.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/file_system.h"

namespace lockstep::jobs {
namespace {

std::filesystem::path run_path(const config::Config& config) {
  return std::filesystem::path(config.run.dir) / config.run.name;
}

bool has_checkpoint(const std::filesystem::path& run) {
  return !storage::list_steps(run / "checkpoints").empty();
}

// A run that is not over is taken up again, from its newest checkpoint or, if it was
// cut before it had one or is told to, from its beginning. One that is over is only if
// it has a checkpoint to resume from.
bool can_be_taken_up(const std::filesystem::path& path, const config::Config& config) {
  std::error_code ignored;
  if (config.run.name.empty() || !std::filesystem::exists(path / "run.json", ignored)) {
    return false;
  }
  const auto run = run::RunDirectory::open(path);
  if (!is_over(run, run.read_record().state)) return true;
  return config::resumes(config.checkpoint) && has_checkpoint(path);
}

// Removes those of the ranks of an earlier command, however many they were.
void remove_errors(const run::RunDirectory& run) {
  std::error_code ignored;
  for (const auto& name : storage::names_in(run.path())) {
    if (text::starts_with(name, "error_rank_")) {
      std::filesystem::remove(run.path() / name, ignored);
    }
  }
}

// Returns why it begins again what it had begun before; "" if it does not.
std::string why_again(const std::filesystem::path& run, const planner::Plan& plan,
                      run::RunStatus before) {
  if (before == run::RunStatus::planned) return "";
  if (!has_checkpoint(run)) return "has no checkpoint";
  const bool told = !config::resumes(plan.config.config.checkpoint);
  return told ? "is not to resume from its checkpoints (checkpoint.resume=never)" : "";
}

run::RunDirectory take_up(const planner::Plan& plan, const run::NewRun& wanted,
                          const Caller& caller) {
  const auto path = run_path(plan.config.config);
  auto run = run::RunDirectory::open(path);
  const auto before = run.read_record();
  if (const auto why = why_again(path, plan, before.state); !why.empty()) {
    caller.say(str("the run in '", path.string(), "' ", why, "; it starts over"));
  }
  // It is done while no other process can begin: a rank that is restarted after a fault
  // resumes from what is there.
  if (!config::resumes(plan.config.config.checkpoint)) {
    const auto aside =
        storage::set_aside(storage::FileSystem::real(), run.checkpoints(), -1);
    if (aside) caller.say(str("its checkpoints are in '", aside->string(), "' now"));
  }
  auto record = wanted.record;
  record.id = before.id;
  record.started = before.started;
  run::propose(run, {wanted.config_yaml, wanted.plan_json});
  if (!has_checkpoint(path)) run::accept_proposed(run);  // nothing was trained before
  files::write_atomically(run.record_file(), run::to_json(record));
  remove_errors(run);
  return run;
}

}  // namespace

bool is_over(const run::RunDirectory& run, run::RunStatus state) {
  if (state != run::RunStatus::done) return false;
  const auto done = run::last_done(run.events());
  return !done || done->over;
}

bool names_resumable_run(const config::Config& config) {
  return !config.run.name.empty() && config::resumes(config.checkpoint) &&
         has_checkpoint(run_path(config));
}

std::optional<run::RunLock> lock_existing_run(const config::Config& config,
                                              bool take_over, const Caller& caller) {
  const auto path = run_path(config);
  if (!can_be_taken_up(path, config)) return std::nullopt;
  run::LockOptions options;
  options.take_over = take_over;
  options.say = caller.say;
  return run::RunLock::take(path, options);
}

OpenedRun open_run(const planner::Plan& plan, OpenOptions options,
                   const Caller& caller) {
  auto& lock = options.lock;
  const auto& config = plan.config.config;
  run::NewRun wanted{.name = config.run.name,
                     .record = run::record_of_this_process(),
                     .config_yaml = config::to_yaml(plan.config, true),
                     .plan_json = planner::to_json(plan),
                     .lock = nullptr};
  if (!options.watched) wanted.record.pid = 0;
  wanted.record.recipe = plan.config.recipe;
  wanted.record.command = caller.command_line;
  if (lock) return {take_up(plan, wanted, caller), std::move(*lock)};
  wanted.lock = &lock;
  try {
    auto directory = run::RunDirectory::create(config.run.dir, wanted);
    return {std::move(directory), std::move(*lock)};
  } catch (const Error&) {
    // Another process may have made it since we looked: then that run counts.
    lock.reset();
    auto theirs = lock_existing_run(config, /*take_over=*/false, caller);
    if (!theirs) throw;
    return {take_up(plan, wanted, caller), std::move(*theirs)};
  }
}

void keep_machine(const run::RunDirectory& run, const hardware::Machine& machine) {
  files::write_atomically(run.machine(), hardware::to_json(machine));
}

}  // namespace lockstep::jobs
