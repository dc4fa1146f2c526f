// Starts the ranks of one size, with a trace.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/cli/detail/launch.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/parity.h"
#include "lockstep/cli/detail/train.h"
#include "lockstep/config/print.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/monitor/run_directory.h"

namespace lockstep::cli {
namespace {

monitor::RunDirectory make_run(const ParityPlace& place, const planner::Plan& plan) {
  monitor::NewRun wanted{.name = plan.config.config.run.name,
                         .record = monitor::record_of_this_process(),
                         .config_yaml = config::to_yaml(plan.config, true),
                         .plan_json = planner::to_json(plan)};
  wanted.record.recipe = plan.config.recipe;
  wanted.record.command = place.context.command_line;
  return monitor::RunDirectory::create(place.directory, wanted);
}

std::vector<std::string> worker_command(const ParityPlace& place,
                                        const std::filesystem::path& run,
                                        const ParityRequest& request, int ranks) {
  std::vector<std::string> command{place.worker.string(), "--run-dir", run.string(),
                                   "--trace", (run / "trace").string()};
  if (request.pytorch && ranks == request.ranks[0]) {
    command.emplace_back("--trace-batches");
  }
  if (request.injection && request.injection->rank < ranks) {
    command.insert(command.end(), {"--inject", to_text(*request.injection)});
  }
  return command;
}

}  // namespace

ParityRun run_size(const ParityPlace& place, const planner::Plan& plan,
                   const ParityRequest& request) {
  const auto& config = plan.config.config;
  const int ranks = config.parallel.ranks.value();
  const auto run = make_run(place, plan);
  const auto path = std::filesystem::absolute(run.path());
  std::filesystem::create_directory(path / "trace");
  launcher::Job job;
  job.command = worker_command(place, path, request, ranks);
  const int started = processes(config.parallel);
  for (auto& where :
       launcher::place_ranks(hardware::cpu_topology(), {.ranks = started})) {
    where.threads = config.parallel.threads.value();
    job.ranks.push_back({.place = std::move(where)});
  }
  job.first.world_size = started;
  job.first.job_id = run.read_record().id;
  job.hang_limits = hang_limits(config.watch);
  job.say = [&](std::string_view sentence) {
    place.context.err << "lockstep: " << printable(sentence) << std::endl;
  };
  return {.name = ranks == 1 ? "1 rank" : str(ranks, " ranks"),
          .ranks = ranks,
          .trace = path / "trace",
          .result = launcher::run_job(run, job, place.signals)};
}

}  // namespace lockstep::cli
