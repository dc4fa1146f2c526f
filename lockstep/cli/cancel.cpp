// lockstep cancel JOB.
#include "lockstep/cli/detail/service_client.h"

namespace lockstep::cli {

Command cancel_command() {
  return job_action({.name = "cancel",
                     .summary = "Cancel a job: it saves a checkpoint and ends.",
                     .details = "After the grace period (queue.grace) it is killed. "
                                "`lockstep resume` continues from\nits checkpoint.\n"});
}

}  // namespace lockstep::cli
