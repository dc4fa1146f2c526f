// lockstep resume JOB.
#include <ostream>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/cli/detail/service_client.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

int resume_job(const Arguments& arguments, Context& context) {
  Json body = Json::object();
  if (const auto cores = arguments.number("--cores", 1)) {
    body["resources"]["cores"] = *cores;
  }
  if (const auto gpus = arguments.number("--gpus", 0)) {
    body["resources"]["gpus"] = *gpus;
  }
  const auto client = service_client(arguments, context);
  const auto answer = client->call(
      "POST", str("/v1/jobs/", *arguments.operand("JOB"), "/resume"), body.dump());
  const auto job = Json::parse(answer.body);
  if (arguments.has("--json")) {
    context.out << answer.body << "\n";
  } else {
    context.out << job.at("id").get<std::string>() << " is "
                << job.at("state").get<std::string>() << "\n";
  }
  return kExitOk;
}

}  // namespace

Command resume_command() {
  return {.name = "resume",
          .summary = "Resume a job that is paused, interrupted, failed or cancelled.",
          .usage = "lockstep resume JOB [--gpus N] [--cores N] [options]",
          .details = "It resumes from its newest checkpoint.\n",
          .operands = {{.name = "JOB", .help = "The id of the job (lockstep jobs)."}},
          .options = service_options(
              {{.name = "--gpus",
                .value = "N",
                .help = "The number of GPUs from now on (default: as before)."},
               {.name = "--cores",
                .value = "N",
                .help = "The number of CPU cores from now on (default: as before)."}}),
          .run = resume_job};
}

}  // namespace lockstep::cli
