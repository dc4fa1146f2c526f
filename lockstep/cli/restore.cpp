// lockstep restore FILE: the database of the service from a backup.
#include <cerrno>
#include <ostream>

#include <fcntl.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/service_store.h"
#include "lockstep/service/audit.h"

namespace lockstep::cli {
namespace {

int restore(const Arguments& arguments, Context& context) {
  const std::filesystem::path source(*arguments.operand("FILE"));
  if (!std::filesystem::is_regular_file(source)) {
    throw Error(Fault::io, "restore: there is no '", source.string(), "'");
  }
  const auto state = service_folder(arguments, context);
  const files::Descriptor lock(
      ::open((state / "serve.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct flock whole {};
  whole.l_type = F_WRLCK;
  if (!lock || ::fcntl(lock.get(), F_SETLK, &whole) != 0) {
    throw Error(Fault::config, "restore: the server runs; stop it first");
  }
  const auto target = state / "lockstep.db";
  const auto beside = state / "restored.db";
  std::filesystem::remove(beside);
  {
    service::Store backup(source);
    if (const auto altered = service::first_altered(backup)) {
      throw Error(Fault::io, "restore: line ", *altered, " of the audit log in '",
                  source.string(), "' is not as it was written; take another backup");
    }
    backup.database().back_up_to(beside);
  }
  for (const auto* ending : {"-wal", "-shm"}) {
    std::filesystem::remove(target.string() + ending);
    std::filesystem::remove(beside.string() + ending);
  }
  std::filesystem::rename(beside, target);
  files::sync_directory(state);
  context.out << target.string() << "\n";
  return kExitOk;
}

}  // namespace

Command restore_command() {
  return {.name = "restore",
          .summary = "Put a backup of the service's database in its place.",
          .usage = "lockstep restore FILE [--config server.yaml]",
          .details = "The server has to be stopped. What was before is replaced.\n",
          .operands = {{.name = "FILE",
                        .help = "Made by `lockstep backup`.",
                        .completes = Completes::file}},
          .options = {server_config_option()},
          .run = restore};
}

}  // namespace lockstep::cli
