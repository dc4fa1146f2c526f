// lockstep user list|add: users of the service.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/service_store.h"
#include "lockstep/service/access.h"

namespace lockstep::cli {
namespace {

int user(const Arguments& arguments, Context& context) {
  service::Store store(service_folder(arguments, context) / "lockstep.db");
  if (*arguments.operand("ACTION") == "add") {
    const auto name = arguments.operand("NAME");
    if (!name) throw Error(Fault::config, "user add: name the user");
    service::add_user(store, *name);
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows{{"NAME"}};
  for (const auto& known : service::users(store)) rows.push_back({known.name});
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
          .options = {server_config_option()},
          .run = user};
}

}  // namespace lockstep::cli
