// lockstep pause JOB.
#include "lockstep/cli/detail/service_client.h"

namespace lockstep::cli {

Command pause_command() {
  return job_action(
      {.name = "pause",
       .summary = "Pause a job: it saves a checkpoint and frees its GPUs.",
       .details = "`lockstep resume` continues it, on other GPUs or another number of "
                  "them, too.\n"});
}

}  // namespace lockstep::cli
