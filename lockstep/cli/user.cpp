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
    service::add_user(store, *name, arguments.value("--unix-user").value_or(""));
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows{{"NAME", "UNIX USER"}};
  for (const auto& known : service::users(store)) {
    rows.push_back({known.name, known.unix_user.empty() ? "-" : known.unix_user});
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
              "       lockstep user add NAME [--unix-user U]",
          .operands = {{.name = "ACTION",
                        .help = "list or add.",
                        .choices = {"list", "add"}},
                       {.name = "NAME", .help = "add: the user.", .required = false}},
          .options = {{.name = "--unix-user",
                       .value = "U",
                       .help = "Its jobs run as this user of the machine; the server "
                               "has to be root then."},
                      server_config_option()},
          .run = user};
}

}  // namespace lockstep::cli
