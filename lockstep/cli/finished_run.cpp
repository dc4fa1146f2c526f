// Handles a run that exists already, or will be resumed.
#include "lockstep/cli/detail/finished_run.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/decisions.h"
#include "lockstep/config/print.h"
#include "lockstep/jobs/over.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/run/events.h"
#include "lockstep/run/field.h"
#include "lockstep/storage/catalog.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

std::string result_text(const run::RunDirectory& run) {
  const auto eval = monitor::last_metrics(run.metrics(), monitor::Split::eval);
  if (!eval) return "";
  const auto primary = monitor::primary_of(*eval);
  const bool shows = primary && primary->name != "loss";
  return fmt::format(
      ", test loss {:.4f}{}", eval->loss,
      shows ? fmt::format(", {} {:.4f}", primary->name, primary->value) : "");
}

std::string weights_of(const run::RunDirectory& run) {
  const auto file = run.path() / "model.safetensors";
  std::error_code ignored;
  return fs::exists(file, ignored) ? file.string() : "";
}

void say_over(const jobs::OverRun& over, const Arguments& arguments, Context& context) {
  const auto& [run, done] = over;
  const auto weights = weights_of(run);
  // A script that prepares a run takes its path from there.
  if (arguments.has("--prepare")) {
    context.out << fs::absolute(run.path()).string() << "\n";
  } else if (arguments.has("--json")) {
    context.out << run::to_json_line(
                       std::vector<run::NamedValue>{{"state", std::string("done")},
                                                    {"reason", done.reason},
                                                    {"steps", done.steps},
                                                    {"already_over", true},
                                                    {"weights", weights}})
                << "\n";
  }
  context.err << "lockstep: "
              << printable(fmt::format(
                     "the run in {} finished at step {} ({}{}){}; nothing was changed",
                     run.path().string(), done.steps, done.reason, result_text(run),
                     weights.empty() ? "" : ", its weights are in " + weights))
              << "\nlockstep: raise train.steps or train.epochs"
              << (done.reason == "done" ? "" : ", or change early_stop,")
              << " to train further; name another --run-dir to start over\n";
}

bool was_typed(const Arguments& arguments, std::string_view key) {
  const auto typed = arguments.overrides();
  return std::any_of(typed.begin(), typed.end(),
                     [&](const config::Override& knob) { return knob.key == key; });
}

}  // namespace

std::optional<int> say_if_over(const planner::Plan& plan, const Arguments& arguments,
                               Context& context) {
  const auto over = jobs::find_over(plan.config);
  if (!over) return std::nullopt;
  say_over(*over, arguments, context);
  return kExitOk;
}

std::string resume_command(const TypedRun& typed, const Context& context) {
  const auto& [plan, arguments, run] = typed;
  const auto& config = plan.config.config;
  const auto path = run.path().string();
  const bool begins_anew = !config::resumes(config.checkpoint);
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

void say_how_to_resume(const TypedRun& typed, const launcher::JobResult& result,
                       Context& context) {
  const auto& run = typed.run;
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
    return say_how_it_diverged(typed.plan.config.config, run, context);
  }
  const auto saved = storage::list_steps(run.checkpoints());
  if (saved.empty()) {
    const bool failed = result.state == run::RunStatus::failed;
    if (!failed) context.err << "lockstep: no checkpoint was saved\n";
    return;
  }
  context.err << "lockstep: its last checkpoint is "
              << printable(saved.back().path.string()) << "; resume with:\n"
              << "  " << printable(resume_command(typed, context)) << "\n";
}

}  // namespace lockstep::cli
