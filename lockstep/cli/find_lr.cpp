// lockstep find-lr RECIPE: one short run in which the learning rate grows at every
// step.
#include "lockstep/cli/detail/find_lr.h"

#include <cmath>
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/train.h"
#include "lockstep/jobs/prepare.h"
#include "lockstep/jobs/worker.h"

namespace lockstep::cli {
namespace {

double rate_of(const Arguments& arguments, std::string_view option, double usual) {
  const auto given = arguments.value(option);
  if (!given) return usual;
  const auto number = text::to_double(*given);
  if (number && std::isfinite(*number) && *number > 0) return *number;
  throw Error(Fault::config, option, ": '", *given,
              "' is not a learning rate above 0; write for example 1e-6");
}

// Returns the factor of the recipe's rate for its batch (optim.lr_scaling).
double scaling_of(const config::OptimConfig& optim, std::int64_t global_batch) {
  const auto times =
      static_cast<double>(global_batch) / static_cast<double>(optim.base_batch);
  switch (optim.lr_scaling) {
    case config::LrScaling::linear:
      return times;
    case config::LrScaling::sqrt:
      return std::sqrt(times);
    default:
      return 1;
  }
}

int find_lr(const Arguments& arguments, Context& context) {
  const auto request = lr_request(arguments);
  auto wanted = config::load(arguments.operand("RECIPE").value_or(""),
                             arguments.overrides(), context.environment);
  const auto before = wanted.config.optim;
  const auto settings = make_sweep(wanted, request);
  const auto caller = caller_of(context);
  const auto plan = jobs::prepare(wanted, /*chooses=*/true, caller).plan;
  const auto worker = jobs::find_worker(caller);
  const auto& config = plan.config.config;
  launcher::Signals signals;
  const jobs::Trials trials{config.run.dir, worker, caller, signals};
  const auto run = jobs::make_trial(trials, plan);
  context.err << plan_text({plan.config, settings}, context.color_err) << "run  "
              << printable(run.path().string()) << "\nlockstep: " << request.steps
              << " steps, each with a larger learning rate" << std::endl;
  const auto result = jobs::run_trial(trials, {.plan = plan, .run = run});
  LrFinding finding{.points = lr_points(monitor::read_metrics(run.metrics())),
                    .directory = run.path().string()};
  files::write_atomically(run.path() / "lr_finder.csv", lr_csv(finding.points));
  if (result.state != run::RunStatus::done) {
    print_error(context, str("find-lr: ", result.message, "; the run is kept in ",
                             run.path().string()));
    return result.exit;
  }
  finding.best = steepest(finding.points);
  if (finding.best) {
    finding.lr = rounded_lr(finding.points[*finding.best].lr /
                            scaling_of(before, config.batch.global.value()));
  }
  context.out << (arguments.has("--json") ? lr_json(finding) : lr_text(finding));
  return finding.best ? kExitOk : kExitFailed;
}

}  // namespace

LrRequest lr_request(const Arguments& arguments) {
  LrRequest request;
  request.steps = arguments.number("--steps", 1).value_or(request.steps);
  request.from = rate_of(arguments, "--from", request.from);
  request.to = rate_of(arguments, "--to", request.to);
  constexpr auto kFewest = static_cast<std::int64_t>(kSkippedPoints) + 5;
  if (request.steps < kFewest) {
    throw Error(Fault::config, "--steps: ", request.steps, " are too few: the first ",
                kSkippedPoints, " do not count; take at least ", kFewest);
  }
  if (request.from >= request.to) {
    throw Error(Fault::config, "--from: ", text::from_double(request.from),
                " is not below --to ", text::from_double(request.to));
  }
  return request;
}

std::vector<planner::Choice> make_sweep(config::Loaded& wanted,
                                        const LrRequest& request) {
  jobs::Settings settings(wanted, "find-lr");
  const std::string because = "the rate goes from --from to --to";
  settings.set("schedule.warmup_steps", "0", because);
  settings.set("schedule.warmup_epochs", "0", because);
  settings.set("schedule.milestones", "[]", because);
  settings.set("schedule.unit", "step", because);
  settings.set("schedule.name", "sweep", because);
  settings.set("schedule.start_ratio", text::from_double(request.from / request.to),
               because);
  settings.set("optim.lr", text::from_double(request.to), because);
  settings.set("optim.lr_scaling", "none", because);
  jobs::only_steps(settings, wanted.config, request.steps);
  settings.set("train.log_every", "1", "every loss is looked at");
  settings.set("train.on_nonfinite", "skip", "the sweep ends there");
  settings.set("train.fast_dev_run", "0", "set by --steps");
  settings.set("early_stop.patience", "0", "set by --steps");
  settings.set("early_stop.divergence", text::from_double(request.diverged),
               "the rate is too large beyond it");
  settings.set("eval.sanity_batches", "0", "evaluation is off");
  settings.set("checkpoint.save_best", "false", "the weights are not needed");
  return settings.take();
}

Command find_lr_command() {
  return {
      .name = "find-lr",
      .summary = "Find a learning rate for a recipe.",
      .usage = "lockstep find-lr RECIPE [options] [section.key=value]...",
      .details =
          "  lockstep find-lr recipes/fashion_mnist.yaml\n"
          "  lockstep find-lr recipes/fashion_mnist.yaml --from 1e-6 --to 0.1 "
          "parallel.ranks=2\n\n"
          "A short run of its own: the learning rate grows by a constant factor every "
          "step\n"
          "until the smoothed loss is 4 times its minimum. The suggestion is the rate "
          "at which it\n"
          "falls fastest, without the first 10 steps. No weights are kept; "
          "lr_finder.csv in the\n"
          "run directory has the numbers. Exit status: 0 a rate was found, 1 none "
          "was.\n",
      .operands =
          {{.name = "RECIPE",
            .help = "A YAML or JSON file with the knobs of the run; -: standard input.",
            .completes = Completes::file}},
      .options = {{.name = "--from",
                   .value = "RATE",
                   .help = "The first learning rate (default: 1e-8)."},
                  {.name = "--to",
                   .value = "RATE",
                   .help = "The last learning rate (default: 1)."},
                  {.name = "--steps",
                   .value = "N",
                   .help = "Steps from one to the other (default: 100)."},
                  {.name = "--json", .help = "Print the result as one JSON object."}},
      .takes_overrides = true,
      .run = find_lr};
}

}  // namespace lockstep::cli
