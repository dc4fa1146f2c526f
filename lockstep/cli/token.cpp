// lockstep token create|list|revoke: who may use the server.
#include <ostream>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/service_client.h"
#include "lockstep/cli/detail/service_store.h"
#include "lockstep/service/service.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string text_in(const Json& json, const char* key, const char* otherwise) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>()
                                                   : otherwise;
}

int create_token(ServiceClient& client, const Arguments& arguments, Context& context) {
  const auto user = arguments.value("--user");
  if (!user) throw Error(Fault::config, "token create: --user NAME is missing");
  Json wanted = {{"user", *user}, {"role", arguments.value("--role").value_or("user")}};
  if (const auto text = arguments.value("--expires")) {
    const auto time = units::parse_duration(*text);
    if (!time || time->count() == 0) {
      throw Error(Fault::config, "--expires: a time such as 30d or 12h");
    }
    wanted["expires_seconds"] = static_cast<double>(time->count()) / 1000;
  }
  const auto answer = client.call("POST", "/v1/tokens", wanted.dump());
  if (arguments.has("--json")) {
    context.out << answer.body << "\n";
    return kExitOk;
  }
  const auto made = Json::parse(answer.body);
  context.out << text_in(made, "secret", "") << "\n";
  context.err << "lockstep: " << text_in(made, "id", "") << ", role "
              << text_in(made, "role", "") << ", expires "
              << text_in(made, "expires", "never")
              << "; the secret is not kept and cannot be shown again\n";
  return kExitOk;
}

int list_tokens(ServiceClient& client, const Arguments& arguments, Context& context) {
  const auto answer = client.call("GET", "/v1/tokens");
  if (arguments.has("--json")) {
    context.out << answer.body << "\n";
    return kExitOk;
  }
  std::vector<std::vector<std::string>> rows{
      {"ID", "USER", "ROLE", "CREATED", "EXPIRES", "REVOKED"}};
  const auto page = Json::parse(answer.body);
  for (const auto& token : page.at("items")) {
    rows.push_back({text_in(token, "id", ""), text_in(token, "user", ""),
                    text_in(token, "role", ""), text_in(token, "created", ""),
                    text_in(token, "expires", "never"),
                    token.value("revoked", false) ? "yes" : "no"});
  }
  context.out << text::table(rows);
  return kExitOk;
}

int token(const Arguments& arguments, Context& context) {
  const auto client = service_client(arguments, context);
  const auto action = *arguments.operand("ACTION");
  if (action == "create") return create_token(*client, arguments, context);
  if (action == "list") return list_tokens(*client, arguments, context);
  const auto id = arguments.operand("TOKEN");
  if (!id) {
    throw Error(Fault::config, "token revoke: name a token (lockstep token list)");
  }
  client->call("DELETE", "/v1/tokens/" + *id);
  return kExitOk;
}

}  // namespace

std::filesystem::path service_folder(const Arguments& arguments,
                                     const Context& context) {
  const auto loaded = config::load_server(arguments.value("--config").value_or(""), {});
  auto state = service::state_folder(loaded.config.store, caller_of(context));
  return service::made_private(state);
}

Option server_config_option() {
  return {.name = "--config",
          .value = "FILE",
          .help = "The server's server.yaml.",
          .completes = Completes::file};
}

Command token_command() {
  return {.name = "token",
          .summary = "Create, list and revoke tokens of the service.",
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
          .options = service_options(
              {{.name = "--user", .value = "NAME", .help = "The user it belongs to."},
               {.name = "--role",
                .value = "admin|user|viewer",
                .help = "Its role (default: user).",
                .choices = {"admin", "user", "viewer"}},
               {.name = "--expires",
                .value = "TIME",
                .help = "When it expires, for example 30d (default: never)."}}),
          .run = token};
}

}  // namespace lockstep::cli
