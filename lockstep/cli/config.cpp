#include <algorithm>
#include <filesystem>
#include <ostream>
#include <span>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/inference.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/config/load.h"
#include "lockstep/config/print.h"
#include "lockstep/jobs/prepare.h"
#include "lockstep/planner/plan.h"

namespace lockstep::cli {
namespace {

// Returns the knob or section that `show` is asked about: any word that is not a file.
std::optional<std::string> asked_knob(const Arguments& args) {
  for (const auto* name : {"RECIPE", "KNOB"}) {
    const auto word = args.operand(name);
    if (!word || *word == "-" || word->find('/') != std::string::npos) continue;
    std::error_code ignored;
    const bool named =
        word->ends_with(".yaml") || word->ends_with(".yml") || word->ends_with(".json");
    if (!named && !std::filesystem::exists(*word, ignored)) return word;
  }
  return std::nullopt;
}

config::Loaded load(const Arguments& args, const Context& context) {
  const auto overrides = args.overrides();
  auto recipe = args.operand("RECIPE");
  if (args.operand("ACTION") == "show" && recipe == asked_knob(args)) recipe.reset();
  if (!recipe) return config::defaults(overrides, context.environment);
  return config::load(*recipe, overrides, context.environment);
}

int show(const Arguments& args, Context& context) {
  auto loaded = load(args, context);
  if (args.has("--plan")) {
    loaded = jobs::prepare(loaded, /*chooses=*/true, caller_of(context)).plan.config;
  }
  if (const auto knob = asked_knob(args)) {
    context.out << config::explain(loaded, *knob);
    return kExitOk;
  }
  context.out << (args.has("--json") ? config::to_json(loaded)
                                     : config::to_table(loaded));
  return kExitOk;
}

// Returns what the worker has seen of the data as lines.
std::string data_text(const config::DataConfig& config, const std::string& seen) {
  const auto json = nlohmann::json::parse(seen, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw Error(Fault::internal, "config check: lockstep_worker said '", seen, "'");
  }
  const auto count = [&](const char* part) {
    return text::with_commas(json.at(part).get<std::int64_t>());
  };
  auto lines =
      str("data: ", config.name, ", ", count("train"), " samples to train on, ",
          count("eval"), " to evaluate on, ", count("read"), " of them read\n");
  for (const auto& tensor : json.at("tensors")) {
    std::vector<std::string> sizes;
    for (const auto& size : tensor.at("shape")) sizes.push_back(size.dump());
    lines += str("  ", tensor.at("name").get<std::string>(), " (",
                 text::join(sizes, ", "), ") ", tensor.at("dtype").get<std::string>(),
                 tensor.contains("varies") ? ", of any length up to it" : "", "\n");
  }
  const auto classes = json.at("classes").get<std::int64_t>();
  if (classes == 0) return lines;
  const auto names = json.at("class_names").get<std::vector<std::string>>();
  constexpr std::size_t kShown = 8;
  const auto shown = std::span(names).first(std::min(names.size(), kShown));
  return lines + str("  ", classes, " classes", names.empty() ? "" : ": ",
                     text::join(shown, ", "), names.size() > kShown ? ", ..." : "",
                     "\n");
}

int check(const Arguments& args, Context& context) {
  if (!args.operand("RECIPE")) {
    throw Error(Fault::config,
                "config check: name a recipe, for example "
                "'lockstep config check recipes/fashion_mnist.yaml'");
  }
  const auto loaded = load(args, context);
  std::string data = "null";
  if (!args.has("--no-data")) {
    const auto looked = run_inference(
        {.command = "config check", .catches_output = true, .mode = "--check-data"},
        loaded, context);
    if (const auto status = status_of(looked.end); status != kExitOk) return status;
    data = text::trim(looked.out);
  }
  if (args.has("--json")) {
    context.out << "{\"ok\": true, \"data\": " << data << "}\n";
    return kExitOk;
  }
  context.out << "ok: " << loaded.recipe << '\n';
  if (data != "null") {
    context.out << printable(data_text(loaded.config.data, data));
  }
  return kExitOk;
}

int reference(const Arguments& args, Context& context) {
  if (args.operand("RECIPE") || !args.overrides().empty() || args.has("--plan")) {
    throw Error(Fault::config,
                "config reference: lists every knob, whatever a recipe says, and takes "
                "only --json; 'lockstep config show' has the values of a recipe");
  }
  context.out << (args.has("--json") ? config::reference_json()
                                     : config::reference_markdown());
  return kExitOk;
}

int run_config(const Arguments& args, Context& context) {
  const auto action = args.operand("ACTION");
  if (action == "check") return check(args, context);
  if (action == "show") return show(args, context);
  return reference(args, context);
}

}  // namespace

Command config_command() {
  return {
      .name = "config",
      .summary = "Show every knob with its value and source, check a recipe.",
      .usage =
          "lockstep config show [RECIPE] [KNOB] [section.key=value]...\n"
          "       lockstep config check RECIPE [--no-data] [section.key=value]...\n"
          "       lockstep config reference [--json]",
      .details =
          "  lockstep config show recipes/fashion_mnist.yaml optim.lr=3e-4\n"
          "  lockstep config show optim.lr\n"
          "  lockstep config check recipes/fashion_mnist.yaml\n\n"
          "show prints every knob, its value and where it came from: the default, the\n"
          "line of the recipe, the environment (LOCKSTEP_OPTIM_LR), the command line "
          "or,\n"
          "with --plan, the planner's reason; of one knob, or of a section, also what "
          "it\n"
          "does and takes. check says what is wrong with a recipe, opens its data and "
          "reads\n"
          "some samples of it; status 3 where it cannot be read.\n"
          "reference prints docs/reference/config.md; with --json the same as "
          "objects.\n",
      .operands = {{.name = "ACTION",
                    .help = "show, check or reference.",
                    .choices = {"show", "check", "reference"}},
                   {.name = "RECIPE",
                    .help = "A YAML or JSON file, -: standard input; show has the "
                            "defaults without it.",
                    .required = false,
                    .completes = Completes::file},
                   {.name = "KNOB",
                    .help = "show: explain this knob (optim.lr) or section (optim).",
                    .required = false}},
      .options = {{.name = "--json", .help = "One JSON object."},
                  {.name = "--no-data",
                   .help = "check: look at the recipe only, not at its data."},
                  {.name = "--plan",
                   .help = "show: fill in every `auto` for this machine."}},
      .takes_overrides = true,
      .run = run_config,
  };
}

}  // namespace lockstep::cli
