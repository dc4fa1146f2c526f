#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/server.h"
#include "lockstep/jobs/caller.h"
#include "lockstep/service/attempt.h"
#include "lockstep/service/job.h"
#include "lockstep/service/slots.h"
#include "lockstep/service/unix_users.h"

namespace lockstep::service {

// An attempt of a job that is to be started.
struct Start {
  JobFolder folder;
  Job job;
  int attempt = 1;
  std::vector<Lease> leases = {};
  Order order = {};
  std::optional<UnixUser> user = {};  // nothing: as the server
};

// Who runs supervisors: this machine, or Slurm. A seam, so that the queue knows
// neither.
class Executor {
 public:
  virtual ~Executor() = default;

  // May be called again for the same attempt, which then is started once all the same.
  virtual void start(const Start& start, const Pool& pool) = 0;

  virtual AttemptView look(const JobFolder& folder, int attempt) = 0;

  // Asks for a checkpoint and an end; `now`: for an end.
  virtual void stop(const JobFolder& folder, int attempt, bool now) = 0;

  // Returns whether GPUs and cores of this machine are what jobs wait for.
  virtual bool uses_pool() const = 0;
};

std::unique_ptr<Executor> make_local_executor(const jobs::Caller& caller);
std::unique_ptr<Executor> make_slurm_executor(const config::QueueConfig& queue,
                                              const jobs::Caller& caller);

}  // namespace lockstep::service
