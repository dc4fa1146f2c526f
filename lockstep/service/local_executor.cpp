#include <signal.h>
#include <unistd.h>

#include "lockstep/base/str.h"
#include "lockstep/hardware/choose_gpus.h"
#include "lockstep/service/detached.h"
#include "lockstep/service/executor.h"
#include "lockstep/service/job_files.h"

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
    auto wanted = supervisor_of(start.folder, start.attempt, start.user);
    wanted.files = {{start.folder.order(), to_json(start.order)}};
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
    if (view.status == AttemptStatus::absent) return never_begin(folder, attempt);
    if (view.status != AttemptStatus::alive) return;
    if (!is_of_owner(folder, *view.supervisor)) return;
    signal_supervisor(*view.supervisor, now ? SIGKILL : SIGTERM);
  }

  bool uses_pool() const override { return true; }

 private:
  Detached supervisor_of(const JobFolder& folder, int attempt,
                         const std::optional<UnixUser>& user) const {
    Detached wanted;
    wanted.arguments = {program_, "supervise", folder.path().string(), "--attempt",
                        str(attempt)};
    wanted.environment = user ? environment_of(*user, environment_) : environment_;
    wanted.log = folder.log(attempt);
    wanted.user = user;
    if (user) wanted.folder = folder.path();
    return wanted;
  }

  // Nothing of ours is written where another user may have put a link in its place.
  void never_begin(const JobFolder& folder, int attempt) const {
    const auto owner = owner_of(folder);
    if (!owner || *owner == ::geteuid()) {
      end_unbegun(folder, attempt);
      return;
    }
    auto wanted = supervisor_of(folder, attempt, unix_user(*owner));
    wanted.arguments.emplace_back("--only-end");
    start_detached(wanted);
  }

  const std::string program_;
  const jobs::Environment environment_;
};

}  // namespace

std::unique_ptr<Executor> make_local_executor(const jobs::Caller& caller) {
  return std::make_unique<LocalExecutor>(caller);
}

}  // namespace lockstep::service
