#include "lockstep/jobs/worker.h"

#include "lockstep/base/error.h"

namespace lockstep::jobs {

std::filesystem::path find_worker(const Caller& caller) {
  auto path =
      std::filesystem::path(caller.executable).parent_path() / "lockstep_worker";
  if (std::filesystem::exists(path)) return path;
  throw Error(
      Fault::hardware, "train: '", path.string(),
      "' does not exist; build it (./scripts/setup.sh) or copy it beside lockstep");
}

int processes(const config::ParallelConfig& parallel) {
  const bool threads = parallel.strategy == config::Strategy::data_parallel;
  return threads ? 1 : parallel.ranks.value();
}

}  // namespace lockstep::jobs
