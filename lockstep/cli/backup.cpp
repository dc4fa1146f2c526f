// lockstep backup FILE: the database of the service, as it is at one moment.
#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/service_store.h"
#include "lockstep/service/audit.h"

namespace lockstep::cli {
namespace {

int back_up(const Arguments& arguments, Context& context) {
  const std::filesystem::path target(*arguments.operand("FILE"));
  if (std::filesystem::exists(target)) {
    throw Error(Fault::config, "backup: '", target.string(), "' already exists");
  }
  service::Store store(service_folder(arguments, context) / "lockstep.db");
  store.database().back_up_to(target);
  service::Store copy(target);
  if (const auto altered = service::first_altered(copy)) {
    context.err << "lockstep: warning: line " << *altered
                << " of the audit log is not as it was written\n";
  }
  if (const auto last = service::last_audit(copy)) {
    context.err << "lockstep: audit log: line " << last->number << " is the last one, "
                << last->hash << "\n";
  }
  context.out << target.string() << "\n";
  return kExitOk;
}

}  // namespace

Command backup_command() {
  return {.name = "backup",
          .summary = "Copy the database of the service while it runs.",
          .usage = "lockstep backup FILE [--config server.yaml]",
          .details =
              "Runs and uploads are files: copy the folders jobs and files of "
              "store.dir beside it.\n",
          .operands = {{.name = "FILE",
                        .help = "The copy; it must not exist yet.",
                        .completes = Completes::file}},
          .options = {server_config_option()},
          .run = back_up};
}

}  // namespace lockstep::cli
