// lockstep jobs [JOB]: the jobs of the service, or one of them.
#include <ostream>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"
#include "lockstep/cli/detail/service_client.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string text_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || !found->is_string() ? "-" : found->get<std::string>();
}

void print_job(const Json& job, std::ostream& out) {
  for (const auto* key : {"id", "name", "user", "state", "reason", "created", "started",
                          "finished", "waits_for"}) {
    const auto value = text_in(job, key);
    if (value != "-" && !value.empty()) out << key << "  " << printable(value) << "\n";
  }
  for (const auto& change : job.value("history", Json::array())) {
    out << text_in(change, "time") << "  " << text_in(change, "state") << "  "
        << printable(text_in(change, "reason")) << "\n";
  }
}

int show_jobs(const Arguments& arguments, Context& context) {
  const auto client = service_client(arguments, context);
  const auto id = arguments.operand("JOB");
  const auto answer = client->call("GET", id ? "/v1/jobs/" + *id : "/v1/jobs");
  if (arguments.has("--json")) {
    context.out << answer.body << "\n";
    return kExitOk;
  }
  const auto json = Json::parse(answer.body);
  if (id) {
    print_job(json, context.out);
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows{
      {"ID", "USER", "NAME", "STATE", "CREATED", "REASON"}};
  for (const auto& job : json.at("items")) {
    rows.push_back({text_in(job, "id"), text_in(job, "user"),
                    printable(text_in(job, "name")), text_in(job, "state"),
                    short_time(text_in(job, "created")),
                    printable(text_in(job, "reason"))});
  }
  context.out << text::table(rows);
  return kExitOk;
}

}  // namespace

Command jobs_command() {
  return {.name = "jobs",
          .summary = "List the jobs of the service, or show one of them.",
          .usage = "lockstep jobs [JOB] [options]",
          .operands = {{.name = "JOB",
                        .help = "Only this one, with its history.",
                        .required = false}},
          .options = service_options({}),
          .run = show_jobs};
}

}  // namespace lockstep::cli
