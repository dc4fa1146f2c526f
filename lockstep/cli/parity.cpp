// lockstep parity RECIPE: do N ranks compute what one does?
#include "lockstep/cli/detail/parity.h"

#include <algorithm>
#include <ostream>

#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/rank_list.h"
#include "lockstep/cli/detail/train.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/settle_model.h"
#include "lockstep/jobs/worker.h"

namespace lockstep::cli {
namespace {

// The place of the runs: DIR of --keep, or one that is gone afterwards, unless a run
// could not be made, when its logs are needed.
class ParityDirectory {
 public:
  ParityDirectory(const Arguments& arguments, const Context& context)
      : kept_(arguments.value("--keep")) {
    if (kept_) {
      path_ = *kept_;
    } else {
      const auto now = Clock::system().wall().time_since_epoch();
      const auto parent = context.variable("TMPDIR").value_or("");
      path_ =
          std::filesystem::path(parent.empty() ? "/tmp" : parent) /
          str("lockstep-parity-", ::getpid(), "-", now / std::chrono::microseconds(1));
    }
    if (!files::make_new_directory(path_)) {
      throw Error(Fault::config, "--keep: ", path_.string(),
                  " exists already; name a new directory");
    }
  }
  ParityDirectory(const ParityDirectory&) = delete;
  ParityDirectory& operator=(const ParityDirectory&) = delete;
  ~ParityDirectory() {
    std::error_code ignored;  // a leftover in a temporary directory is no failure
    if (!kept_) std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  void keep() { kept_ = path_; }

 private:
  std::optional<std::filesystem::path> kept_;
  std::filesystem::path path_;
};

// Returns true if the run is done; else it prints why not.
bool report(const ParityRun& run, ParityDirectory& place, Context& context) {
  if (run.result.state == run::RunStatus::done) return true;
  const auto text = str("parity: ", run.name, ": ", run.result.message);
  if (run.result.state == run::RunStatus::failed) {
    print_error(context, text);
    place.keep();
    context.err << "lockstep: its logs are in "
                << (run.trace.parent_path() / "logs").string() << "\n";
  } else {
    context.err << "lockstep: " << printable(text) << "\n";
  }
  return false;
}

void announce(const ParityRequest& request, const ParityPlan& plan, Context& context) {
  const auto text = plan_text({plan.sizes[0].config, plan.settings}, context.color_err);
  context.err << text;
  if (request.injection) {
    context.err << "lockstep: injecting a fault: " << to_text(*request.injection)
                << "\n";
  }
}

// Runs every size, and PyTorch; fewer if one of them could not be run: its status is
// that of the command, and the reason was printed.
struct ParityRuns {
  const ParityRequest& request;
  const ParityPlan& plan;
  jobs::Trials trials;
};

std::vector<ParityRun> run_all(const ParityRuns& wanted, ParityDirectory& directory,
                               Context& context) {
  const auto& [request, plan, trials] = wanted;
  auto& err = context.err;
  std::vector<ParityRun> runs;
  for (const auto& size : plan.sizes) {
    const auto ranks = size.config.config.parallel.ranks.value();
    err << "lockstep: " << request.steps << " steps with " << ranks
        << (ranks == 1 ? " rank" : " ranks") << std::endl;
    runs.push_back(run_size(trials, size, request));
    if (!report(runs.back(), directory, context)) return runs;
  }
  if (!request.pytorch) return runs;
  err << "lockstep: " << request.steps << " steps with PyTorch ("
      << printable(request.python) << ")" << std::endl;
  runs.push_back(run_pytorch(
      trials, {.plan = plan.sizes[0], .request = request, .reference = runs[0]}));
  report(runs.back(), directory, context);
  return runs;
}

int parity(const Arguments& arguments, Context& context) {
  const auto request = parity_request(arguments, context);
  const auto caller = caller_of(context);
  auto wanted =
      jobs::settle_model(config::load(arguments.operand("RECIPE").value_or(""),
                                      arguments.overrides(), context.environment),
                         caller);
  const auto plan = parity_plan(request, std::move(wanted), hardware::detect());
  const auto worker = jobs::find_worker(caller);
  if (request.pytorch) require_pytorch(request.python, plan.sizes[0].config.config);
  announce(request, plan, context);
  launcher::Signals signals;
  ParityDirectory directory(arguments, context);
  const auto runs = run_all(
      {request, plan, {directory.path(), worker, caller, signals}}, directory, context);
  if (runs.back().result.state != run::RunStatus::done) {
    return runs.back().result.exit;
  }
  std::vector<Comparison> comparisons;
  for (std::size_t i = 1; i < runs.size(); ++i) {
    comparisons.push_back(compare(runs[0], runs[i], request.steps));
  }
  context.out << (arguments.has("--json")
                      ? parity_json(comparisons, request)
                      : parity_text(comparisons, context.color_out));
  const bool same = std::all_of(comparisons.begin(), comparisons.end(),
                                [](const auto& one) { return one.passes(); });
  return same ? kExitOk : kExitDiffers;
}

std::vector<Option> parity_options() {
  return {
      {.name = "--ranks",
       .value = "LIST",
       .help = "World sizes (default: 1,2); the others are compared with the first."},
      {.name = "--steps", .value = "N", .help = "Steps of each (default: 5)."},
      {.name = "--against",
       .value = "pytorch",
       .help = "Also train by PyTorch's DistributedDataParallel, with as many "
               "ranks as the largest size.",
       .choices = {"pytorch"}},
      {.name = "--python",
       .value = "PATH",
       .help = "The Python that has PyTorch (default: PYTHON_EXEC, else python3).",
       .completes = Completes::file},
      {.name = "--inject",
       .value = "rank=R,scale=S",
       .help = "Scale the gradient of one parameter (the first, or "
               ",parameter=NAME) on one rank before it is exchanged."},
      {.name = "--keep",
       .value = "DIR",
       .help = "Leave runs and traces in this new directory.",
       .completes = Completes::directory},
      {.name = "--json", .help = "Print the result as one JSON object."}};
}

}  // namespace

ParityRequest parity_request(const Arguments& arguments, const Context& context) {
  ParityRequest request;
  request.ranks = rank_list(arguments.value("--ranks").value_or("1,2"));
  request.steps = arguments.number("--steps", 1).value_or(request.steps);
  request.pytorch = arguments.has("--against");
  request.python = arguments.value("--python")
                       .value_or(context.variable("PYTHON_EXEC").value_or("python3"));
  if (arguments.has("--python") && !request.pytorch) {
    throw Error(Fault::config, "--python is of no use without --against pytorch");
  }
  if (request.ranks.size() < 2 && !request.pytorch) {
    throw Error(Fault::config, "--ranks: there is nothing to compare ",
                request.ranks[0],
                " with; list several sizes, or add --against pytorch");
  }
  if (const auto text = arguments.value("--inject")) {
    request.injection = run::parse_injection(*text);
    const auto most = *std::max_element(request.ranks.begin(), request.ranks.end());
    if (request.injection->rank >= most) {
      throw Error(Fault::config, "--inject: there is no rank ", request.injection->rank,
                  " among ", most, "; the first is 0");
    }
  }
  return request;
}

Command parity_command() {
  return {
      .name = "parity",
      .summary = "Show that several ranks compute what one does.",
      .usage = "lockstep parity RECIPE [options] [section.key=value]...",
      .details =
          "  lockstep parity recipes/fashion_mnist_quick.yaml --ranks 1,2,3\n"
          "  lockstep parity recipes/fashion_mnist_quick.yaml --against pytorch\n"
          "  lockstep parity recipes/fashion_mnist_quick.yaml --inject "
          "rank=1,scale=1.001\n\n"
          "Trains a few steps from the same seed on the same samples at every size, "
          "in\n"
          "float64, and prints what losses, gradients and parameters differ by. The "
          "last\n"
          "one injects a fault: it must fail. Exit status: 0 they are the same,\n"
          "8 they are not; 1, 2, 3: a run could not be made, as for `train`.\n",
      .operands =
          {{.name = "RECIPE",
            .help = "A YAML or JSON file with the knobs of the run; -: standard input.",
            .completes = Completes::file}},
      .options = parity_options(),
      .takes_overrides = true,
      .run = parity};
}

}  // namespace lockstep::cli
