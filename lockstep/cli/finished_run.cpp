// A run that is there already, or will be taken up again: what it takes to go on.
#include "lockstep/cli/detail/finished_run.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/print.h"
#include "lockstep/monitor/events.h"
#include "lockstep/monitor/field.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/storage/catalog.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// The knobs that say when a run ends. Whether others of them make it any longer, the
// worker knows, who has the data.
bool ends_a_run(const std::string& key) {
  const bool speed =
      key == "data.workers" || key == "data.prefetch" || key == "data.pin_memory";
  return (text::starts_with(key, "data.") && !speed) ||
         text::starts_with(key, "early_stop.") || key == "train.steps" ||
         key == "train.epochs" || key == "train.limit_train_batches" ||
         key == "train.fast_dev_run" || key == "train.overfit_batches" ||
         key == "batch.global";
}

bool asks_for_the_same(const monitor::RunDirectory& run, const config::Loaded& now) {
  try {
    const auto before = config::load(run.config(), {}, {});
    const auto keys = config::keys();
    return std::none_of(keys.begin(), keys.end(), [&](const std::string& key) {
      return ends_a_run(key) && config::get(before, key) != config::get(now, key);
    });
  } catch (const Error&) {
    return false;  // of another version: the worker will see
  }
}

// The run of that name, if there is one that is done.
std::optional<monitor::RunDirectory> done_run(const config::RunConfig& run) {
  if (run.name.empty()) return std::nullopt;
  try {
    auto directory = monitor::RunDirectory::open(fs::path(run.dir) / run.name);
    if (directory.read_record().state != monitor::RunState::done) return std::nullopt;
    return directory;
  } catch (const Error&) {
    return std::nullopt;  // none, or one that whoever takes it will complain about
  }
}

// Whether `resume` is where the run would go on from anyway: itself.
bool names_the_end_of(const monitor::RunDirectory& run, const std::string& resume) {
  std::error_code ignored;
  const auto place = fs::weakly_canonical(resume, ignored);
  const auto is = [&](const fs::path& own) {
    return place == fs::weakly_canonical(own, ignored);
  };
  const auto steps = storage::list_steps(run.checkpoints());
  return is(run.path()) || is(run.checkpoints()) ||
         (!steps.empty() && is(steps.back().path));
}

// Whether the run was started with the same words for where to go on from.
bool began_with(const monitor::RunDirectory& run, const std::string& resume) {
  try {
    return config::load(run.config(), {}, {}).config.checkpoint.resume == resume;
  } catch (const Error&) {
    return false;  // of another version
  }
}

// A run that is over is repeated or extended; whoever wants something else of it would
// be surprised by what the worker does, or by what is in the directory afterwards.
void refuse_what_is_over(const monitor::RunDirectory& run, std::int64_t steps,
                         const std::string& resume) {
  if (resume == "auto") return;
  if (resume == "never") {
    throw Error(Fault::config, "train: the run in '", run.path().string(),
                "' is over after step ", steps,
                " and does not begin anew (checkpoint.resume=never); name another "
                "--run-dir, or remove it");
  }
  if (names_the_end_of(run, resume) || began_with(run, resume)) return;
  throw Error(Fault::config, "checkpoint.resume: the run in '", run.path().string(),
              "' is over after step ", steps,
              " and goes on from its own last checkpoint only; to go on from '", resume,
              "', name it with another --run-dir");
}

std::string result_text(const monitor::RunDirectory& run) {
  const auto eval = monitor::last_metrics(run.metrics(), monitor::Split::eval);
  if (!eval) return "";
  const auto primary = monitor::primary_of(*eval);
  const bool shows = primary && primary->name != "loss";
  return fmt::format(
      ", test loss {:.4f}{}", eval->loss,
      shows ? fmt::format(", {} {:.4f}", primary->name, primary->value) : "");
}

std::string weights_of(const monitor::RunDirectory& run) {
  const auto file = run.path() / "model.safetensors";
  std::error_code ignored;
  return fs::exists(file, ignored) ? file.string() : "";
}

void say_over(const monitor::RunDirectory& run, const monitor::RunDone& done,
              const Arguments& arguments, Context& context) {
  const auto weights = weights_of(run);
  // Whoever prepares a run takes its path from there.
  if (arguments.has("--prepare")) {
    context.out << fs::absolute(run.path()).string() << "\n";
  } else if (arguments.has("--json")) {
    context.out << monitor::to_json_line(
                       std::vector<monitor::Field>{{"state", std::string("done")},
                                                   {"reason", done.reason},
                                                   {"steps", done.steps},
                                                   {"already_over", true},
                                                   {"weights", weights}})
                << "\n";
  }
  context.err << "lockstep: "
              << printable(fmt::format(
                     "the run in {} is over after step {} ({}{}){}; nothing was "
                     "changed",
                     run.path().string(), done.steps, done.reason, result_text(run),
                     weights.empty() ? "" : ", its weights are in " + weights))
              << "\nlockstep: raise train.steps or train.epochs"
              << (done.reason == "done" ? "" : ", or change early_stop,")
              << " to train on; name another --run-dir to begin anew\n";
}

bool was_typed(const Arguments& arguments, std::string_view key) {
  const auto typed = arguments.overrides();
  return std::any_of(typed.begin(), typed.end(),
                     [&](const config::Override& knob) { return knob.key == key; });
}

}  // namespace

bool is_over(const monitor::RunDirectory& run, monitor::RunState state) {
  if (state != monitor::RunState::done) return false;
  const auto done = monitor::last_done(run.events());
  return !done || done->over;
}

std::optional<int> say_if_over(const planner::Plan& plan, const Arguments& arguments,
                               Context& context) {
  const auto& config = plan.config.config;
  const auto run = done_run(config.run);
  if (!run) return std::nullopt;
  const auto done = monitor::last_done(run->events());
  if (!done || !done->over) return std::nullopt;
  refuse_what_is_over(*run, done->steps, config.checkpoint.resume);
  const auto& steps = config.train.steps;
  const bool asks_for_less =
      !steps.is_auto() && steps.value() <= done->steps && done->reason == "done";
  if (asks_for_less || asks_for_the_same(*run, plan.config)) {
    say_over(*run, *done, arguments, context);
    return kExitOk;
  }
  if (!storage::list_steps(run->checkpoints()).empty()) return std::nullopt;
  throw Error(Fault::config, "train: the run in '", run->path().string(),
              "' is over after step ", done->steps,
              " and has no checkpoint to go on from (checkpoint.save_last=false); name "
              "another --run-dir to begin anew");
}

std::string resume_command(const planner::Plan& plan, const Arguments& arguments,
                           const monitor::RunDirectory& run, const Context& context) {
  const auto& config = plan.config.config;
  const auto path = run.path().string();
  const bool begins_anew = config.checkpoint.resume == "never";
  if (begins_anew || arguments.operand("RECIPE") == "-") {
    return str(shell_word(context.program), " train ",
               shell_word(run.config().string()), " --run-dir ", shell_word(path),
               begins_anew ? " --resume auto" : "");
  }
  if (!config.run.name.empty()) return context.command_line;
  // run.dir would be set twice.
  if (was_typed(arguments, "run.dir")) {
    return str(context.command_line, " ",
               shell_word("run.name=" + run.path().filename().string()));
  }
  return str(context.command_line, " --run-dir ", shell_word(path));
}

void say_how_to_resume(const planner::Plan& plan, const Arguments& arguments,
                       const monitor::RunDirectory& run,
                       const launcher::JobResult& result, Context& context) {
  // Its message has said that there is nothing left.
  if (!result.ends.empty() && result.ends[0].homeless) return;
  std::error_code ignored;
  if (!fs::exists(run.record_file(), ignored)) {
    context.err << "lockstep: the run directory " << printable(run.path().string())
                << " is gone\n";
    return;
  }
  context.err << "lockstep: the run is kept in " << printable(run.path().string())
              << "\n";
  if (result.fault == Fault::diverged) {
    return say_how_it_diverged(plan.config.config, run, context);
  }
  const auto saved = storage::list_steps(run.checkpoints());
  if (saved.empty()) {
    const bool failed = result.state == monitor::RunState::failed;
    if (!failed) context.err << "lockstep: no checkpoint was saved\n";
    return;
  }
  context.err << "lockstep: its last checkpoint is "
              << printable(saved.back().path.string()) << "; this goes on from there:\n"
              << "  " << printable(resume_command(plan, arguments, run, context))
              << "\n";
}

}  // namespace lockstep::cli
