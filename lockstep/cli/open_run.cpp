#include "lockstep/cli/detail/open_run.h"

#include <filesystem>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/finished_run.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/print.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/file_system.h"

namespace lockstep::cli {
namespace {

std::filesystem::path path_of(const config::Config& config) {
  return std::filesystem::path(config.run.dir) / config.run.name;
}

bool has_checkpoint(const std::filesystem::path& run) {
  return !storage::list_steps(run / "checkpoints").empty();
}

// A run that is not over is taken up again, from its newest checkpoint or, if it was
// cut before it had one or is told to, from its beginning. One that is over only if it
// has a checkpoint to go on from.
bool can_be_taken_up(const std::filesystem::path& path, const config::Config& config) {
  std::error_code ignored;
  if (config.run.name.empty() || !std::filesystem::exists(path / "run.json", ignored)) {
    return false;
  }
  const auto run = monitor::RunDirectory::open(path);
  if (!is_over(run, run.read_record().state)) return true;
  return config.checkpoint.resume != "never" && has_checkpoint(path);
}

// Of the ranks of an earlier command, however many they were.
void remove_errors(const monitor::RunDirectory& run) {
  std::error_code ignored;
  for (const auto& name : storage::names_in(run.path())) {
    if (text::starts_with(name, "error_rank_")) {
      std::filesystem::remove(run.path() / name, ignored);
    }
  }
}

// Why it begins again what it has begun before; "" if it does not.
std::string why_again(const std::filesystem::path& run, const planner::Plan& plan,
                      monitor::RunState before) {
  if (before == monitor::RunState::planned) return "";
  if (!has_checkpoint(run)) return "has no checkpoint";
  const bool told = plan.config.config.checkpoint.resume == "never";
  return told ? "is not to go on from its checkpoints (checkpoint.resume=never)" : "";
}

monitor::RunDirectory take_up(const planner::Plan& plan, const monitor::NewRun& wanted,
                              Context& context) {
  const auto path = path_of(plan.config.config);
  auto run = monitor::RunDirectory::open(path);
  const auto before = run.read_record();
  if (const auto why = why_again(path, plan, before.state); !why.empty()) {
    context.err << "lockstep: the run in '" << printable(path.string()) << "' " << why
                << "; it begins again\n";
  }
  // Now, while nobody else can begin: a rank that is started again after a fault goes
  // on from what is there.
  if (plan.config.config.checkpoint.resume == "never") {
    const auto aside =
        storage::set_aside(storage::FileSystem::real(), run.checkpoints(), -1);
    if (aside) {
      context.err << "lockstep: its checkpoints are in '" << printable(aside->string())
                  << "' now\n";
    }
  }
  auto record = wanted.record;
  record.id = before.id;
  record.started = before.started;
  files::write_atomically(run.config(), wanted.config_yaml);
  files::write_atomically(run.plan(), wanted.plan_json);
  files::write_atomically(run.record_file(), monitor::to_json(record));
  remove_errors(run);
  return run;
}

}  // namespace

bool names_resumable_run(const config::Config& config) {
  return !config.run.name.empty() && config.checkpoint.resume != "never" &&
         has_checkpoint(path_of(config));
}

std::optional<monitor::RunLock> lock_existing_run(const config::Config& config,
                                                  bool take_over, Context& context) {
  const auto path = path_of(config);
  if (!can_be_taken_up(path, config)) return std::nullopt;
  monitor::LockOptions options;
  options.take_over = take_over;
  options.say = [&context](std::string_view sentence) {
    context.err << "lockstep: " << printable(sentence) << std::endl;
  };
  return monitor::RunLock::take(path, options);
}

OpenedRun open_run(const planner::Plan& plan, std::optional<monitor::RunLock> lock,
                   Context& context, bool watched) {
  const auto& config = plan.config.config;
  monitor::NewRun wanted{.name = config.run.name,
                         .record = monitor::record_of_this_process(),
                         .config_yaml = config::to_yaml(plan.config, true),
                         .plan_json = planner::to_json(plan),
                         .lock = nullptr};
  if (!watched) wanted.record.pid = 0;
  wanted.record.recipe = plan.config.recipe;
  wanted.record.command = context.command_line;
  if (lock) return {take_up(plan, wanted, context), std::move(*lock)};
  wanted.lock = &lock;
  try {
    auto directory = monitor::RunDirectory::create(config.run.dir, wanted);
    return {std::move(directory), std::move(*lock)};
  } catch (const Error&) {
    // Somebody may have made it since we looked: then that one is told.
    lock.reset();
    auto theirs = lock_existing_run(config, /*take_over=*/false, context);
    if (!theirs) throw;
    return {take_up(plan, wanted, context), std::move(*theirs)};
  }
}

}  // namespace lockstep::cli
