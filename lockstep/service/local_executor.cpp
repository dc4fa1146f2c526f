#include <signal.h>

#include "lockstep/base/str.h"
#include "lockstep/hardware/choose_gpus.h"
#include "lockstep/service/detached.h"
#include "lockstep/service/executor.h"

namespace lockstep::service {
namespace {

// A plan looks at GPUs and computes nothing on them: they may be others'.
std::vector<int> gpus_to_plan_for(const Job& job, const Pool& pool) {
  if (!job.resources.gpu_ids.empty()) return job.resources.gpu_ids;
  auto gpus = pool.gpus;
  const auto wanted = static_cast<std::size_t>(job.resources.gpus);
  if (gpus.size() > wanted) gpus.resize(wanted);
  return gpus;
}

class LocalExecutor : public Executor {
 public:
  explicit LocalExecutor(const jobs::Caller& caller)
      : program_(caller.executable),
        environment_(clean_environment(caller.environment)) {}

  void start(const Start& start, const Pool& pool) override {
    Detached wanted;
    wanted.arguments = {program_, "supervise", start.folder.path().string(),
                        "--attempt", str(start.attempt)};
    wanted.environment = environment_;
    wanted.log = start.folder.log(start.attempt);
    std::vector<int> gpus;
    for (const auto& lease : start.leases) {
      (lease.is_gpu ? gpus : wanted.cpus).push_back(lease.unit);
    }
    if (start.job.kind == JobKind::plan) gpus = gpus_to_plan_for(start.job, pool);
    // A job without a GPU must not see one that is another's.
    wanted.environment.emplace_back(
        "CUDA_VISIBLE_DEVICES",
        gpus.empty() ? "" : hardware::visible_devices(pool.machine, gpus));
    start_detached(wanted);
  }

  AttemptView look(const JobFolder& folder, int attempt) override {
    return look_at_attempt(folder, attempt);
  }

  void stop(const JobFolder& folder, int attempt, bool now) override {
    const auto view = look_at_attempt(folder, attempt);
    if (view.status == AttemptStatus::absent) end_unbegun(folder, attempt);
    if (view.status != AttemptStatus::alive) return;
    signal_supervisor(*view.supervisor, now ? SIGKILL : SIGTERM);
  }

  bool uses_pool() const override { return true; }

 private:
  const std::string program_;
  const jobs::Environment environment_;
};

}  // namespace

std::unique_ptr<Executor> make_local_executor(const jobs::Caller& caller) {
  return std::make_unique<LocalExecutor>(caller);
}

}  // namespace lockstep::service
