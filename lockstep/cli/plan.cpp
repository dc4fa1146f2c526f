// lockstep plan: what a run would be like, on this machine or on any other.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/gpt_sizes.h"
#include "lockstep/config/load.h"
#include "lockstep/hardware/json.h"
#include "lockstep/jobs/knowledge.h"
#include "lockstep/jobs/settle_model.h"
#include "lockstep/jobs/state_directory.h"
#include "lockstep/planner/report.h"
#include "lockstep/planner/shipped.h"

namespace lockstep::cli {
namespace {

bool is_file(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".json");
}

struct WantedRun {
  const config::Loaded& wanted;
  const hardware::Machine& machine;
};

hardware::Machine machine_for(const Arguments& arguments, const config::Loaded& wanted,
                              Context& context) {
  const auto named = arguments.value("--hardware");
  if (!named) return jobs::known_machine(caller_of(context), wanted.config.run.dir);
  return is_file(*named) ? hardware::load(*named) : planner::shipped_machine(*named);
}

planner::Knowledge knowledge_for(const Arguments& arguments, const WantedRun& run,
                                 const Context& context) {
  const auto& [wanted, machine] = run;
  const auto shipped = arguments.value("--model");
  const auto file = arguments.value("--describe");
  if (shipped && file) {
    throw Error(Fault::config,
                "plan: --model and --describe both name a model; give "
                "one of them");
  }
  const auto caller = caller_of(context);
  if (!shipped && !file) return jobs::gather_knowledge(wanted, machine, caller);
  planner::Knowledge knowledge{.set_variables = jobs::set_variables(caller)};
  knowledge.model = shipped ? planner::shipped_model(*shipped) : run::load_model(*file);
  knowledge.correction =
      jobs::correction_for({*knowledge.model, wanted.config, machine}, caller);
  return knowledge;
}

config::Loaded wanted_of(const Arguments& arguments, const Context& context) {
  const auto recipe = arguments.operand("RECIPE");
  if (recipe) return config::load(*recipe, arguments.overrides(), context.environment);
  if (!arguments.value("--model") && !arguments.value("--describe")) {
    throw Error(Fault::config,
                "plan: name a recipe, or a model with --model or --describe");
  }
  return config::defaults(arguments.overrides(), context.environment);
}

int plan(const Arguments& arguments, Context& context) {
  auto wanted = wanted_of(arguments, context);
  // A description stands for the recipe's model, whatever its weights are.
  if (!arguments.value("--model") && !arguments.value("--describe")) {
    wanted = jobs::settle_model(std::move(wanted), caller_of(context));
  }
  const auto machine = machine_for(arguments, wanted, context);
  auto knowledge = knowledge_for(arguments, {wanted, machine}, context);
  if (knowledge.worker_died) throw Error(Fault::hardware, "plan: ", knowledge.no_model);
  if (arguments.value("--hardware")) knowledge.set_variables.clear();  // of another
  try {
    const auto made = planner::resolve(wanted, machine, knowledge);
    context.out << (arguments.has("--json")
                        ? planner::to_json(made)
                        : printable(
                              planner::report(made, machine, arguments.has("--all"))));
  } catch (const Error& error) {
    if (error.fault() != Fault::hardware) throw;
    // A user who plans for another machine wants to know why it can not be, too.
    const auto candidates = planner::survey(wanted, machine, knowledge);
    if (!candidates.empty()) {
      context.err << planner::candidate_table(candidates, arguments.has("--all"))
                  << "\n";
    }
    throw;
  }
  return kExitOk;
}

// Returns the names of the shipped models, Hugging Face's for GPT-2 among them.
std::vector<std::string> model_names() {
  auto names = planner::shipped_models();
  for (const auto& size : config::kGptSizes) names.emplace_back(size.hf_name);
  return names;
}

}  // namespace

Command plan_command() {
  return {
      .name = "plan",
      .summary = "Show how a recipe would be trained, what it takes, and why.",
      .usage = "lockstep plan [RECIPE] [options] [section.key=value]...",
      .details =
          "  lockstep plan recipes/resnet18_cifar10.yaml\n"
          "  lockstep plan recipes/resnet18_cifar10.yaml --hardware 4xl4\n"
          "  lockstep plan --model gpt2-1.5b --hardware dgx-h100 batch.global=512\n\n"
          "The chosen plan with a reason for every knob, what it is predicted to take, "
          "the\n"
          "other candidates and why they lost (docs/planner.md). Nothing is trained.\n",
      .operands = {{.name = "RECIPE",
                    .help =
                        "A YAML or JSON file with the knobs of the run; -: standard "
                        "input.",
                    .required = false,
                    .completes = Completes::file}},
      .options = {{.name = "--hardware",
                   .value = "MACHINE",
                   .help = "A machine by name (dgx-h100, 8xa100-40, 1xrtx4090, "
                           "2x(4xh100), cpu-32), or a file of `lockstep hardware "
                           "--json`; default: this one.",
                   .choices = planner::shipped_machines(),
                   .free_text = true,
                   .completes = Completes::file},
                  {.name = "--model",
                   .value = "NAME",
                   .help = "A model whose description is part of this program, instead "
                           "of the recipe's.",
                   .choices = model_names()},
                  {.name = "--describe",
                   .value = "FILE",
                   .help = "A description that `lockstep_worker --describe` has "
                           "written, instead of the recipe's model.",
                   .completes = Completes::file},
                  {.name = "--all",
                   .help = "Every candidate, not only the best of "
                           "each strategy."},
                  {.name = "--json",
                   .help = "Print one JSON object (plan.json of a run)."}},
      .takes_overrides = true,
      .run = plan};
}

}  // namespace lockstep::cli
