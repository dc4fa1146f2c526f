// lockstep token create|list|revoke: who may use the server.
#include <ostream>

#include <sys/stat.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/service_store.h"
#include "lockstep/service/access.h"
#include "lockstep/service/audit.h"
#include "lockstep/service/service.h"

namespace lockstep::cli {
namespace {

std::string moment(service::Milliseconds time) {
  return time == 0 ? "never" : iso_time(WallTime(std::chrono::milliseconds(time)));
}

int create_token(service::Store& store, const Arguments& arguments, Context& context) {
  const auto user = arguments.value("--user");
  const auto role = service::role_of(arguments.value("--role").value_or("user"));
  if (!user) throw Error(Fault::config, "token create: --user NAME is missing");
  service::NewToken wanted{.user = *user, .role = *role};
  if (const auto text = arguments.value("--expires")) {
    const auto time = units::parse_duration(*text);
    if (!time || time->count() == 0) {
      throw Error(Fault::config, "--expires: a time such as 30d or 12h");
    }
    wanted.expires = store.now() + time->count();
  }
  const auto made = service::add_token(store, wanted);
  service::write_audit(store, {.user = *user,
                               .token = "local",
                               .action = "token create",
                               .target = made.id,
                               .status = 0});
  context.out << made.secret << "\n";
  context.err << "lockstep: " << made.id << ", role " << service::name_of(*role)
              << ", expires " << moment(wanted.expires)
              << "; the secret is not kept and can not be shown again\n";
  return kExitOk;
}

int list_tokens(service::Store& store, Context& context) {
  std::vector<std::vector<std::string>> rows{
      {"ID", "USER", "ROLE", "CREATED", "EXPIRES", "REVOKED"}};
  for (const auto& token : service::tokens(store)) {
    rows.push_back({token.id, token.user, std::string(service::name_of(token.role)),
                    moment(token.created), moment(token.expires),
                    token.revoked ? "yes" : "no"});
  }
  context.out << text::table(rows);
  return kExitOk;
}

int token(const Arguments& arguments, Context& context) {
  service::Store store(service_folder(arguments, context) / "lockstep.db");
  const auto action = *arguments.operand("ACTION");
  if (action == "create") return create_token(store, arguments, context);
  if (action == "list") return list_tokens(store, context);
  const auto id = arguments.operand("TOKEN");
  if (!id)
    throw Error(Fault::config, "token revoke: name a token (lockstep token list)");
  if (!service::revoke_token(store, *id)) {
    throw Error(Fault::config, "token revoke: there is no token '", *id, "'");
  }
  service::write_audit(store, {.user = "local",
                               .token = "local",
                               .action = "token revoke",
                               .target = *id,
                               .status = 0});
  return kExitOk;
}

}  // namespace

std::filesystem::path service_folder(const Arguments& arguments,
                                     const Context& context) {
  const auto loaded = config::load_server(arguments.value("--config").value_or(""), {});
  auto state = service::state_folder(loaded.config.store, caller_of(context));
  std::filesystem::create_directories(state);
  if (::chmod(state.c_str(), 0700) != 0) files::fail("protect", state, errno);
  return state;
}

Option server_config_option() {
  return {.name = "--config",
          .value = "FILE",
          .help = "The server's server.yaml.",
          .completes = Completes::file};
}

Command token_command() {
  return {.name = "token",
          .summary = "Make, list and revoke tokens of the service.",
          .usage =
              "lockstep token create --user NAME [--role R] [--expires TIME]\n"
              "       lockstep token list\n"
              "       lockstep token revoke TOKEN",
          .details =
              "The secret is printed once. viewer: see what the user has; user: change "
              "it;\nadmin: everything.\n",
          .operands = {{.name = "ACTION",
                        .help = "create, list or revoke.",
                        .choices = {"create", "list", "revoke"}},
                       {.name = "TOKEN", .help = "revoke: its id.", .required = false}},
          .options = {{.name = "--user", .value = "NAME", .help = "Whose token it is."},
                      {.name = "--role",
                       .value = "admin|user|viewer",
                       .help = "What it allows (default: user).",
                       .choices = {"admin", "user", "viewer"}},
                      {.name = "--expires",
                       .value = "TIME",
                       .help = "Then it is worth nothing, for example 30d."},
                      server_config_option()},
          .run = token};
}

}  // namespace lockstep::cli
