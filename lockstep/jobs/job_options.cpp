#include "lockstep/jobs/job_options.h"

#include "lockstep/config/decisions.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/worker.h"

namespace lockstep::jobs {
namespace {

// A rank computes on the GPU of its number; replicas of one process on all of theirs.
void assign_gpus(const config::ParallelConfig& parallel,
                 std::vector<launcher::RankOptions>& ranks) {
  for (auto& rank : ranks) rank.gpus.emplace();
  if (parallel.device != config::Device::cuda) return;
  for (const int gpu : parallel.device_ids) ranks[0].gpus->push_back(gpu);
  for (int gpu = 0; parallel.device_ids.empty() && gpu < parallel.ranks.value();
       ++gpu) {
    ranks[static_cast<std::size_t>(gpu) % ranks.size()].gpus->push_back(gpu);
  }
}

// Rank 0 has the terminal to itself; what the others print goes to their logs.
std::vector<launcher::RankOptions> rank_options(
    launcher::Binding binding, const config::ParallelConfig& parallel) {
  launcher::PlacementRequest request;
  request.ranks = processes(parallel);
  request.binding = binding;
  if (parallel.device == config::Device::cuda) {
    request.near_gpu = near_gpus(request.binding, request.ranks);
  }
  std::vector<launcher::RankOptions> ranks;
  for (auto& place : launcher::place_ranks(hardware::cpu_topology(), request)) {
    place.threads = parallel.threads.value();  // the plan's word, which was printed
    ranks.push_back({.place = std::move(place)});
  }
  assign_gpus(parallel, ranks);
  ranks[0].owns_terminal = true;
  return ranks;
}

}  // namespace

std::vector<std::vector<int>> near_gpus(launcher::Binding binding, int ranks) {
  if (binding == launcher::Binding::none) return {};
  const auto gpus = hardware::detect().gpus;
  if (static_cast<int>(gpus.size()) < ranks) return {};
  std::vector<std::vector<int>> near;
  near.reserve(gpus.size());
  for (int rank = 0; rank < ranks; ++rank) {
    near.push_back(hardware::cpus_near(gpus[static_cast<std::size_t>(rank)].pci_id));
  }
  return near;
}

launcher::HangLimits hang_limits(const config::WatchConfig& watch) {
  return {.step_floor = watch.step_floor,
          .step_factor = watch.step_factor,
          .step_timeout = watch.step_timeout,
          .startup = watch.startup,
          .first_step = watch.first_step,
          .evaluation = watch.evaluation,
          .saving = watch.saving,
          .loading = watch.loading};
}

launcher::Job training_job(const planner::Plan& plan, const OpenedRun& opened,
                           const StartOptions& options) {
  const auto& config = plan.config.config;
  const auto& run = opened.directory;
  launcher::Job job;
  for (const auto& variable : plan.environment) {
    job.environment.emplace_back(variable.name, variable.value);
  }
  job.environment.insert(job.environment.end(), options.environment.begin(),
                         options.environment.end());
  job.command = {options.worker.string(), "--run-dir", run.path().string()};
  job.ranks = rank_options(options.binding, config.parallel);
  job.first.world_size = static_cast<int>(job.ranks.size());
  job.first.job_id = run.read_record().id;
  job.first.max_restarts = options.max_restarts;
  job.grace = options.grace;
  job.hang_limits = hang_limits(config.watch);
  job.resumes = config::resumes(config.checkpoint);
  job.lost_to = [&lock = opened.lock] { return lock.lost_to(); };
  job.lock = opened.lock.descriptor();
  job.say = options.say;
  return job;
}

}  // namespace lockstep::jobs
