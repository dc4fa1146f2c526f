// lockstep pause JOB.
#include "lockstep/cli/detail/service_client.h"

namespace lockstep::cli {

Command pause_command() {
  return job_action({.name = "pause",
                     .summary = "Pause a job: a checkpoint, and its GPUs are free.",
                     .details = "`lockstep resume` goes on, on other GPUs or another "
                                "number of them, too.\n"});
}

}  // namespace lockstep::cli
