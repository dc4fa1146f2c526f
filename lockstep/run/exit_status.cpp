#include "lockstep/run/exit_status.h"

#include "lockstep/base/error.h"
#include "lockstep/storage/catalog.h"

namespace lockstep::run {

int exit_of_stop(const RunDirectory& run, bool resumes, int signal) {
  return stop_status(signal,
                     resumes && !storage::list_steps(run.checkpoints()).empty());
}

}  // namespace lockstep::run
