// lockstep submit RECIPE: a training for the service.
#include <ostream>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/kubernetes.h"
#include "lockstep/cli/detail/service_client.h"
#include "lockstep/config/load.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLargestRecipe = 1 << 20;

// Words of the command line go into the recipe: a server takes only that.
std::string recipe_text(const Arguments& arguments) {
  const auto file = *arguments.operand("RECIPE");
  auto text = files::read(file == "-" ? "/dev/stdin" : file, kLargestRecipe);
  const auto overrides = arguments.overrides();
  if (overrides.empty()) return text;
  auto loaded = config::load_text(file, text, overrides);
  Json recipe = Json::object();
  for (const auto& [key, source] : loaded.sources) {
    if (source.origin == config::Origin::standard ||
        source.origin == config::Origin::planner) {
      continue;
    }
    const auto dot = key.find('.');
    recipe[key.substr(0, dot)][key.substr(dot + 1)] = config::get(loaded, key);
  }
  // Values are as a recipe spells them: this is YAML that has JSON's braces.
  std::string lines;
  for (const auto& [section, knobs] : recipe.items()) {
    lines += section + ":\n";
    for (const auto& [name, value] : knobs.items()) {
      lines += "  " + name + ": " + value.get<std::string>() + "\n";
    }
  }
  return lines;
}

Json inputs_of(const Arguments& arguments) {
  Json inputs = Json::object();
  const auto typed = arguments.value("--input").value_or("");
  for (const auto& pair : text::split(typed, ',')) {
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    if (equals == std::string::npos) {
      throw Error(Fault::config, "--input: '", pair,
                  "' is not of the form KNOB=NAME, for example data.dir=file-0123");
    }
    inputs[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return inputs;
}

std::vector<int> numbers_in(const std::string& list) {
  std::vector<int> numbers;
  for (const auto& word : text::split(list, ',')) {
    const auto number = text::to_integer(word);
    if (!number) throw Error(Fault::config, "--gpu-ids: numbers such as 0,1");
    numbers.push_back(static_cast<int>(*number));
  }
  return numbers;
}

Json resources_in(const Arguments& arguments) {
  Json resources = Json::object();
  if (const auto gpus = arguments.number("--gpus", 0)) resources["gpus"] = *gpus;
  if (const auto ids = arguments.value("--gpu-ids")) {
    resources["gpu_ids"] = numbers_in(*ids);
  }
  if (const auto typed = arguments.value("--min-memory")) {
    const auto bytes = units::parse_bytes(*typed);
    if (!bytes) throw Error(Fault::config, "--min-memory: a size such as 40GB");
    resources["min_memory_bytes"] = *bytes;
  }
  if (const auto typed = arguments.value("--memory-fraction")) {
    const auto share = text::to_double(*typed);
    if (!share) throw Error(Fault::config, "--memory-fraction: a share such as 0.5");
    resources["memory_fraction"] = *share;
  }
  if (const auto cores = arguments.number("--cores", 1)) resources["cores"] = *cores;
  return resources;
}

Json submission_of(const Arguments& arguments) {
  Json body = {{"recipe", recipe_text(arguments)}, {"inputs", inputs_of(arguments)}};
  if (const auto name = arguments.value("--name")) body["name"] = *name;
  if (const auto retries = arguments.number("--retries", 0)) {
    body["max_retries"] = *retries;
  }
  if (const auto priority = arguments.value("--priority")) {
    const auto number = text::to_integer(*priority);
    if (!number) throw Error(Fault::config, "--priority: a whole number");
    body["priority"] = *number;
  }
  if (const auto limit = arguments.value("--time-limit")) {
    const auto time = units::parse_duration(*limit);
    if (!time) throw Error(Fault::config, "--time-limit: a time such as 2h or 30min");
    body["time_limit_seconds"] = static_cast<double>(time->count()) / 1000;
  }
  if (const auto needs = arguments.value("--after")) {
    body["needs"] = text::split(*needs, ',');
  }
  const auto resources = resources_in(arguments);
  if (!resources.empty()) body["resources"] = resources;
  return body;
}

int submit_job(const Arguments& arguments, Context& context) {
  if (arguments.has("--to")) {
    if (!arguments.has("--dry-run")) {
      throw Error(Fault::config,
                  "--to kubernetes: give --dry-run as well; it prints the manifest, "
                  "for `kubectl apply -f -`");
    }
    context.out << kubernetes_manifest(arguments, recipe_text(arguments));
    return kExitOk;
  }
  const auto client = service_client(arguments, context);
  const auto answer = client->call("POST", "/v1/jobs", submission_of(arguments).dump());
  if (arguments.has("--json")) {
    context.out << answer.body << "\n";
  } else {
    context.out << Json::parse(answer.body).at("id").get<std::string>() << "\n";
  }
  return kExitOk;
}

}  // namespace

Command submit_command() {
  return {
      .name = "submit",
      .summary = "Submit a training job to the service.",
      .usage = "lockstep submit RECIPE [options] [section.key=value]...",
      .details =
          "  lockstep submit recipes/fashion_mnist_quick.yaml optim.lr=5e-4\n"
          "  lockstep logs -f JOB\n\n"
          "Prints the id of the job. Knobs that name files are set by --input, with "
          "the id of\nan upload or a name that the server offers.\n",
      .operands = {{.name = "RECIPE",
                    .help = "A YAML or JSON file with the knobs of the run.",
                    .completes = Completes::file}},
      .options = service_options(
          {{.name = "--name", .value = "TEXT", .help = "For people."},
           {.name = "--gpus",
            .value = "N",
            .help = "The number of GPUs (default: 0, trains on CPUs)."},
           {.name = "--gpu-ids",
            .value = "N,...",
            .help = "The ids of the GPUs to use, such as 0,1."},
           {.name = "--min-memory",
            .value = "SIZE",
            .help = "Only GPUs with at least this much memory, such as 40GB."},
           {.name = "--memory-fraction",
            .value = "SHARE",
            .help = "Share GPUs with other jobs: the fraction of memory to use "
                    "(default: alone on them)."},
           {.name = "--cores", .value = "N", .help = "CPU cores (default: 1)."},
           {.name = "--input",
            .value = "KNOB=NAME,...",
            .help = "For knobs that name files."},
           {.name = "--priority",
            .value = "N",
            .help = "Jobs with a higher priority start first (default: 0)."},
           {.name = "--retries",
            .value = "N",
            .help = "The number of retries after a failure (default: 0)."},
           {.name = "--time-limit",
            .value = "TIME",
            .help = "The longest it may run, such as 2h; then it is stopped."},
           {.name = "--after",
            .value = "JOB,...",
            .help = "Start only after these jobs are done."},
           {.name = "--to",
            .value = "kubernetes",
            .help = "kubernetes, with --dry-run: print a manifest instead.",
            .choices = {"kubernetes"}},
           {.name = "--image",
            .value = "NAME",
            .help = "Kubernetes: the container image with lockstep in it."},
           {.name = "--dry-run", .help = "Kubernetes: only print the manifest."}}),
      .takes_overrides = true,
      .run = submit_job};
}

}  // namespace lockstep::cli
