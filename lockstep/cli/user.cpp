// lockstep user list|add: users of the service.
#include <ostream>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/service_client.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

int user(const Arguments& arguments, Context& context) {
  const auto client = service_client(arguments, context);
  if (*arguments.operand("ACTION") == "add") {
    const auto name = arguments.operand("NAME");
    if (!name) throw Error(Fault::config, "user add: name the user");
    client->call("POST", "/v1/users", Json({{"name", *name}}).dump());
    return kExitOk;
  }
  const auto answer = client->call("GET", "/v1/users");
  if (arguments.has("--json")) {
    context.out << answer.body << "\n";
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows{{"NAME"}};
  const auto page = Json::parse(answer.body);
  for (const auto& known : page.at("items")) {
    rows.push_back({known.at("name").get<std::string>()});
  }
  context.out << text::table(rows);
  return kExitOk;
}

}  // namespace

Command user_command() {
  return {.name = "user",
          .summary = "Add and list users of the service.",
          .usage =
              "lockstep user list\n"
              "       lockstep user add NAME",
          .operands = {{.name = "ACTION",
                        .help = "list or add.",
                        .choices = {"list", "add"}},
                       {.name = "NAME", .help = "add: the user.", .required = false}},
          .options = service_options({}),
          .run = user};
}

}  // namespace lockstep::cli
