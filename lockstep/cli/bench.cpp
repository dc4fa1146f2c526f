// lockstep bench RECIPE: the same training with several strategies and sizes, timed.
#include "lockstep/cli/detail/bench.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/rank_list.h"
#include "lockstep/cli/detail/train.h"
#include "lockstep/hardware/gpu_use.h"
#include "lockstep/jobs/knowledge.h"
#include "lockstep/jobs/settle_model.h"
#include "lockstep/jobs/state_directory.h"
#include "lockstep/jobs/worker.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kStrategies[] = "single,data_parallel,ddp";

// Returns the cases that may be named, each for one rank.
std::vector<BenchCase> known_strategies() {
  using config::Strategy;
  return {{Strategy::single},     {Strategy::data_parallel}, {Strategy::ddp},
          {Strategy::zero, 1, 1}, {Strategy::zero, 1, 2},    {Strategy::zero, 1, 3}};
}

std::vector<BenchCase> strategy_list(const std::string& list) {
  std::vector<BenchCase> strategies;
  std::vector<std::string> names;
  for (const auto& known : known_strategies()) names.push_back(known.name());
  for (const auto& word : text::split(list, ',')) {
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end()) {
      throw Error(Fault::config, "--strategies: '", word, "' of '", list,
                  "' is none of ", text::join(names, ","),
                  text::did_you_mean(word, names));
    }
    for (const auto& other : strategies) {
      if (other.name() != word) continue;
      throw Error(Fault::config, "--strategies: ", word, " is in '", list, "' twice");
    }
    strategies.push_back(
        known_strategies()[static_cast<std::size_t>(found - names.begin())]);
  }
  return strategies;
}

// Makes DIR of --run-dir, or the next bench_0001 beside the runs.
fs::path make_directory(const Arguments& arguments, const fs::path& runs) {
  if (const auto given = arguments.value("--run-dir")) {
    if (files::make_new_directory(*given)) return *given;
    throw Error(Fault::config, "--run-dir: ", *given,
                " exists already; name a new directory");
  }
  for (int number = 1;; ++number) {
    const auto path = runs / fmt::format("bench_{:04}", number);
    if (files::make_new_directory(path)) return path;
  }
}

// Returns the GPUs of a run's ranks, as CUDA counts them.
std::vector<std::string> gpus_of(const config::ParallelConfig& parallel,
                                 const hardware::Machine& machine) {
  std::vector<std::string> uuids;
  for (int rank = 0; rank < parallel.ranks.value(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    const auto id = parallel.device_ids.empty()
                        ? place
                        : static_cast<std::size_t>(parallel.device_ids.at(place));
    if (id < machine.gpus.size()) uuids.push_back(machine.gpus[id].uuid);
  }
  return uuids;
}

SteadyTime steady(double seconds) {
  return SteadyTime(std::chrono::duration_cast<SteadyTime::duration>(
      std::chrono::duration<double>(seconds)));
}

// The outcome of a combination; `result` shows whether a user wants to stop.
struct Tried {
  BenchRow row;
  launcher::JobResult result;
};

Tried try_one(const BenchCase& which, const BenchInputs& inputs,
              const jobs::Trials& trials) {
  const auto& machine = inputs.machine;
  Tried tried{.row = {.which = which}, .result = {.exit = kExitOk}};
  try {
    const auto plan = bench_plan(which, inputs);
    const auto run = jobs::make_trial(trials, plan);
    std::optional<hardware::GpuUse> use;
    const auto& parallel = plan.config.config.parallel;
    if (parallel.device == config::Device::cuda) use.emplace();
    tried.result = jobs::run_trial(trials, {.plan = plan, .run = run});
    if (tried.result.state != run::RunStatus::done) {
      throw Error(Fault::internal, tried.result.message);
    }
    const auto timeline = monitor::read_chrome_trace(run.trace());
    tried.row = measured(
        which, {.plan = plan, .timeline = timeline, .cores = machine.logical_cores});
    if (use) {
      tried.row.busy = use->mean(gpus_of(parallel, machine), steady(timeline.begin()),
                                 steady(timeline.end()));
    }
  } catch (const Error& error) {
    tried.row.error = error.what();
  }
  return tried;
}

void save(const fs::path& directory, const std::string& json, const std::string& text) {
  files::write_atomically(directory / run::kBenchFile, json);
  if (!text.empty()) files::write_atomically(directory / "bench.txt", text);
}

int bench(const Arguments& arguments, Context& context) {
  const auto request = bench_request(arguments);
  const auto caller = caller_of(context);
  auto wanted =
      jobs::settle_model(config::load(arguments.operand("RECIPE").value_or(""),
                                      arguments.overrides(), context.environment),
                         caller);
  const auto settings = shorten(wanted, request);
  const auto worker = jobs::find_worker(caller);
  const auto machine = jobs::known_machine(caller, wanted.config.run.dir);
  const auto knowledge = jobs::gather_knowledge(wanted, machine, caller);
  for (const auto& line : request.left_out) context.err << "lockstep: " << line << "\n";
  launcher::Signals signals;
  const auto directory = make_directory(arguments, wanted.config.run.dir);
  context.err << plan_text({wanted, settings}, context.color_err) << "bench  "
              << printable(directory.string()) << std::endl;
  save(directory, bench_json({}, request, directory.string()), "");
  std::vector<BenchRow> rows;
  for (const auto& which : request.cases) {
    context.err << "lockstep: " << request.all_steps() << " steps of " << which.text()
                << std::endl;
    auto tried = try_one(which, {wanted, machine, knowledge},
                         {directory, worker, caller, signals});
    const auto state = tried.result.state;
    const bool stops = tried.result.exit != kExitOk && state == run::RunStatus::stopped;
    if (!tried.row.error.empty()) {
      print_error(context, str("bench: ", which.text(), ": ", tried.row.error));
    }
    if (stops) return tried.result.exit;
    rows.push_back(std::move(tried.row));
  }
  add_efficiency(rows);
  const auto json = bench_json(rows, request, directory.string());
  const auto text = bench_text(rows, request);
  save(directory, json, text);
  context.out << (arguments.has("--json") ? json : text);
  const bool failed = std::any_of(rows.begin(), rows.end(),
                                  [](const auto& row) { return !row.error.empty(); });
  return failed ? kExitFailed : kExitOk;
}

std::vector<Option> bench_options() {
  return {
      {.name = "--strategies",
       .value = "LIST",
       .help = str("Strategies to compare; zero1, zero2 and zero3 are more (default: ",
                   kStrategies, ").")},
      {.name = "--ranks",
       .value = "LIST",
       .help = "World sizes, each with every strategy (default: 1,2)."},
      {.name = "--steps", .value = "N", .help = "Timed steps of each (default: 20)."},
      {.name = "--warmup",
       .value = "N",
       .help = "Warm-up steps before them, not timed (default: 5)."},
      {.name = "--run-dir",
       .value = "DIR",
       .help = "Keep runs and results in this new directory (default: the next "
               "bench_NNNN beside the runs).",
       .completes = Completes::directory},
      {.name = "--json", .help = "Print the result as one JSON object."}};
}

}  // namespace

BenchRequest bench_request(const Arguments& arguments) {
  BenchRequest request;
  request.steps = arguments.number("--steps", 1).value_or(request.steps);
  request.warmup = arguments.number("--warmup", 0).value_or(request.warmup);
  if (request.steps > config::kMostProfiledSteps) {
    throw Error(Fault::config, "--steps: ", request.steps, " are more than ",
                config::kMostProfiledSteps, ", which would make traces too large");
  }
  const auto sizes = rank_list(arguments.value("--ranks").value_or("1,2"));
  for (auto which :
       strategy_list(arguments.value("--strategies").value_or(kStrategies))) {
    for (const auto ranks : sizes) {
      which.ranks = ranks;
      if (which.strategy == config::Strategy::single && ranks > 1) {
        request.left_out.push_back(
            str(which.text(), " skipped: single means one rank"));
      } else {
        request.cases.push_back(which);
      }
    }
  }
  if (request.cases.empty()) {
    throw Error(Fault::config,
                "--ranks: single means one rank, so nothing is left to time; add 1 to "
                "--ranks, or ddp to --strategies");
  }
  return request;
}

Command bench_command() {
  return {
      .name = "bench",
      .summary = "Time a recipe with several strategies and numbers of ranks.",
      .usage = "lockstep bench RECIPE [options] [section.key=value]...",
      .details =
          "  lockstep bench recipes/fashion_mnist.yaml --ranks 1,2\n"
          "  lockstep bench recipes/fashion_mnist.yaml --strategies single,ddp "
          "batch.per_rank=64\n\n"
          "Trains a few steps of each combination, one after the other, and shows time "
          "per\n"
          "step, samples/s, how busy the machine was, memory, and how well it scales. "
          "With\n"
          "batch.global all share one batch; with batch.per_rank it grows with the "
          "ranks.\n"
          "Evaluation and saving are off. Each run leaves its trace.json. Exit status: "
          "0 all\n"
          "were timed, 1 one failed; the others are shown.\n",
      .operands =
          {{.name = "RECIPE",
            .help = "A YAML or JSON file with the knobs of the run; -: standard input.",
            .completes = Completes::file}},
      .options = bench_options(),
      .takes_overrides = true,
      .run = bench};
}

}  // namespace lockstep::cli
