// Starts the ranks of one size, with a trace.
#include "lockstep/base/str.h"
#include "lockstep/cli/detail/parity.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> trace_words(const std::filesystem::path& trace,
                                     const ParityRequest& request, int ranks) {
  std::vector<std::string> command{"--trace", trace.string()};
  if (request.pytorch && ranks == request.ranks[0]) {
    command.emplace_back("--trace-batches");
  }
  if (request.injection && request.injection->rank < ranks) {
    command.insert(command.end(), {"--inject", to_text(*request.injection)});
  }
  return command;
}

}  // namespace

ParityRun run_size(const jobs::Trials& trials, const planner::Plan& plan,
                   const ParityRequest& request) {
  const int ranks = plan.config.config.parallel.ranks.value();
  const auto run = jobs::make_trial(trials, plan);
  const auto trace = std::filesystem::absolute(run.path()) / "trace";
  std::filesystem::create_directory(trace);
  const auto result = jobs::run_trial(
      trials,
      {.plan = plan, .run = run, .arguments = trace_words(trace, request, ranks)});
  return {.name = ranks == 1 ? "1 rank" : str(ranks, " ranks"),
          .ranks = ranks,
          .trace = trace,
          .result = result};
}

}  // namespace lockstep::cli
