// The variables of a rank's environment besides ours.
#include <algorithm>
#include <cstdlib>

#include "lockstep/base/str.h"
#include "lockstep/launcher/detail/attempt.h"
#include "lockstep/launcher/detail/sweep.h"

namespace lockstep::launcher {

std::vector<std::pair<std::string, std::string>> rank_variables(
    const AttemptContext& scene, int local_rank, int attempt) {
  const auto& job = scene.job;
  const auto index = static_cast<std::size_t>(local_rank);
  auto environment = job.first;
  environment.rank += local_rank;
  environment.local_rank = local_rank;
  environment.local_world_size = static_cast<int>(job.ranks.size());
  environment.restart_count = attempt;
  // The path is absolute: a program may change its directory before it fails.
  environment.error_file =
      std::filesystem::absolute(scene.run.error(environment.rank)).string();
  auto variables = run::variables_of(environment);
  // A choice of the user's is not ours to change.
  std::erase_if(variables, [](const auto& given) {
    return given.first == "TORCH_NCCL_ASYNC_ERROR_HANDLING" &&
           std::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING") != nullptr;
  });
  variables.emplace_back(kJobVariable, job_variable(scene.mark));
  // The launcher looks for heartbeats there.
  variables.emplace_back("LOCKSTEP_HEARTBEAT",
                         std::filesystem::absolute(scene.run.heartbeat()).string());
  // The launcher writes its output there: it must not write the same file itself.
  if (!job.ranks[index].owns_terminal) {
    variables.emplace_back(
        "LOCKSTEP_LOG_FILE",
        std::filesystem::absolute(scene.run.log(environment.rank)).string());
  }
  constexpr auto kThreads = "OMP_NUM_THREADS";
  if (std::getenv(kThreads) == nullptr) {
    variables.emplace_back(kThreads, str(job.ranks[index].place.threads));
  }
  // These come last and win: a caller that asks for a variable gets it.
  for (const auto& wanted : job.environment) {
    std::erase_if(variables,
                  [&](const auto& given) { return given.first == wanted.first; });
    variables.push_back(wanted);
  }
  return variables;
}

}  // namespace lockstep::launcher
