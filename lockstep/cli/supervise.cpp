// lockstep supervise FOLDER: one attempt of a job, for the server.
#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/service/supervisor.h"

namespace lockstep::cli {
namespace {

int supervise_job(const Arguments& arguments, Context& context) {
  const auto attempt = arguments.number("--attempt", 1);
  if (!attempt) throw Error(Fault::config, "supervise: --attempt N is missing");
  const service::JobFolder folder(*arguments.operand("FOLDER"));
  if (arguments.has("--only-end")) {
    return service::never_begin(folder, static_cast<int>(*attempt));
  }
  return service::supervise(folder, static_cast<int>(*attempt), caller_of(context));
}

}  // namespace

Command supervise_command() {
  return {.name = "supervise",
          .summary = "Run one attempt of a job (for `lockstep serve`).",
          .usage = "lockstep supervise FOLDER --attempt N [--only-end]",
          .details =
              "The server starts it for every job. It holds the job's lock, runs "
              "the launcher,\nand writes down how that ended.\n",
          .operands = {{.name = "FOLDER",
                        .help = "The folder of the job.",
                        .completes = Completes::directory}},
          .options = {{.name = "--attempt", .value = "N", .help = "Which attempt."},
                      {.name = "--only-end",
                       .help = "End an attempt that has not begun, for good."}},
          .run = supervise_job};
}

}  // namespace lockstep::cli
