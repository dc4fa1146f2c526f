// lockstep logs JOB: what a job prints.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/cli/detail/service_client.h"

namespace lockstep::cli {
namespace {

int show_logs(const Arguments& arguments, Context& context) {
  const auto client = service_client(arguments, context);
  const auto job = *arguments.operand("JOB");
  const auto rank = arguments.number("--rank", 0);
  if (!arguments.has("--follow")) {
    const auto query = rank ? str("?rank=", *rank) : std::string();
    context.out << client->call("GET", str("/v1/runs/", job, "/logs", query)).body;
    return kExitOk;
  }
  client->follow({.job = job, .rank = rank},
                 [&](const std::string& line) { context.out << line << std::endl; });
  return kExitOk;
}

}  // namespace

Command logs_command() {
  return {.name = "logs",
          .summary = "Show what a job prints.",
          .usage = "lockstep logs JOB [-f] [--rank N] [options]",
          .operands = {{.name = "JOB", .help = "The id of the job (lockstep jobs)."}},
          .options = service_options(
              {{.name = "--follow",
                .shorthand = "-f",
                .help = "Go on until the job is over."},
               {.name = "--rank",
                .value = "N",
                .help = "The log of this rank; without it what rank 0 prints."}}),
          .run = show_logs};
}

}  // namespace lockstep::cli
