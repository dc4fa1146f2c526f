// Who may use the server, how it stands, and what was done with it.
#include <set>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/version.h"
#include "lockstep/server/detail/problem.h"
#include "lockstep/server/detail/prometheus.h"
#include "lockstep/server/detail/route.h"

namespace lockstep::server {
namespace {

using service::Milliseconds;
using service::Refusal;
using service::Refused;

std::string moment(Milliseconds time) {
  return iso_time(WallTime(std::chrono::milliseconds(time)));
}

Json token_json(const service::TokenInfo& token) {
  return {{"id", token.id},
          {"user", token.user},
          {"role", service::name_of(token.role)},
          {"created", moment(token.created)},
          {"expires", token.expires == 0 ? Json(nullptr) : Json(moment(token.expires))},
          {"revoked", token.revoked}};
}

Response make_token(service::Service& service, Call& call) {
  auto& store = service.store();
  service::NewToken wanted{
      .user = call.body.at("user").get<std::string>(),
      .role = *service::role_of(call.body.at("role").get<std::string>())};
  const auto seconds = call.body.value("expires_seconds", 0.0);
  if (seconds > 0) {
    wanted.expires = store.now() + static_cast<Milliseconds>(seconds * 1000);
  }
  try {
    service::check_user_name(wanted.user);
  } catch (const Error& error) {
    throw Refusal(Refused::invalid, error.what());
  }
  const auto made = service::add_token(store, wanted);
  call.target = made.id;
  auto json = token_json({.id = made.id,
                          .user = wanted.user,
                          .role = wanted.role,
                          .created = store.now(),
                          .expires = wanted.expires});
  json["secret"] = made.secret;
  return json_response(json);
}

Response add_one_user(service::Service& service, Call& call) {
  const auto name = call.body.at("name").get<std::string>();
  try {
    service::check_user_name(name);
  } catch (const Error& error) {
    throw Refusal(Refused::invalid, error.what());
  }
  service::add_user(service.store(), name);
  call.target = name;
  return json_response({{"name", name}});
}

Response audit_lines(service::Service& service, const Call& call) {
  constexpr std::int64_t kMost = 1000;
  Json items = Json::array();
  for (const auto& entry : service::audit(service.store(), call.number("after", 0),
                                          static_cast<int>(std::clamp<std::int64_t>(
                                              call.number("limit", 100), 1, kMost)))) {
    items.push_back({{"number", entry.number},
                     {"time", moment(entry.time)},
                     {"user", entry.user},
                     {"token", entry.token},
                     {"action", entry.action},
                     {"target", entry.target},
                     {"status", entry.status},
                     {"hash", entry.hash}});
  }
  return json_response({{"items", std::move(items)}});
}

Response queue_of(service::Service& service, const Call& call) {
  Json items = Json::array();
  const auto queue = service.queue();
  for (const auto& place : *queue) {
    const auto job = service.store().find_job(place.turn.job);
    // The place of others' jobs is theirs; how many there are is not.
    if (!job || !call.who.may_see(job->user)) continue;
    items.push_back(
        {{"job", job->id},
         {"position", place.position},
         {"waits_for", place.turn.reason},
         {"starts_in_seconds",
          place.starts_in_seconds ? Json(*place.starts_in_seconds) : Json(nullptr)}});
  }
  return json_response({{"items", std::move(items)}});
}

// Says nothing of what is wrong: everybody may ask.
Response ready(service::Service& service) {
  constexpr int kBusy = 503;
  try {
    service.store().database().check_in_place();
    service.store().jobs({.limit = 1});
    return json_response({{"status", "ready"}});
  } catch (const Error& error) {
    log::error("server", str("not ready: ", error.what()));
    return problem(kBusy, "the database cannot be used; see the server's log");
  }
}

// A list that only admins see.
struct AdminList {
  std::string path;
  std::string operation;
  std::string summary;
  Json item;  // schema of each
};

Route admin_list(const AdminList& list, std::function<Response(Call&)> answer) {
  Route route;
  route.method = "GET";
  route.path = list.path;
  route.operation = list.operation;
  route.summary = list.summary;
  route.access = Access::admin;
  route.response = list_of(list.item);
  route.answer = std::move(answer);
  return route;
}

std::vector<Route> access_routes(service::Service& service) {
  std::vector<Route> routes;
  routes.push_back(admin_list({"/v1/tokens", "listTokens",
                               "List all tokens, without their secrets.", ref("Token")},
                              [&service](Call&) {
                                Json items = Json::array();
                                for (const auto& token : tokens(service.store())) {
                                  items.push_back(token_json(token));
                                }
                                return json_response({{"items", std::move(items)}});
                              }));
  routes.push_back(
      {.method = "POST",
       .path = "/v1/tokens",
       .operation = "createToken",
       .summary = "Create a token; its secret is shown once.",
       .access = Access::admin,
       .changes = true,
       .body = Body::json,
       .request = ref("NewToken"),
       .response = ref("Token"),
       .status = 201,
       .answer = [&service](Call& call) { return make_token(service, call); }});
  routes.push_back({.method = "DELETE",
                    .path = "/v1/tokens/{id}",
                    .operation = "revokeToken",
                    .summary = "Revoke a token.",
                    .access = Access::admin,
                    .changes = true,
                    .response = {{"type", "object"}},
                    .answer = [&service](Call& call) {
                      if (!service::revoke_token(service.store(), call.id())) {
                        throw Refusal(Refused::unknown, "there is no such token");
                      }
                      return json_response({{"revoked", call.id()}});
                    }});
  routes.push_back(
      {.method = "POST",
       .path = "/v1/users",
       .operation = "createUser",
       .summary = "Create a user, unless there is one of that name.",
       .access = Access::admin,
       .changes = true,
       .body = Body::json,
       .request = ref("NewUser"),
       .response = {{"type", "object"}},
       .status = 201,
       .answer = [&service](Call& call) { return add_one_user(service, call); }});
  routes.push_back(admin_list(
      {"/v1/users", "listUsers", "List all users.", {{"type", "object"}}},
      [&service](Call&) {
        Json items = Json::array();
        for (const auto& user : users(service.store())) {
          items.push_back({{"name", user.name}, {"created", moment(user.created)}});
        }
        return json_response({{"items", std::move(items)}});
      }));
  auto log = admin_list({"/v1/audit",
                         "listAudit",
                         "List the audit log: every call that changed something.",
                         {{"type", "object"}}},
                        [&service](Call& call) { return audit_lines(service, call); });
  const Json number = {{"type", "integer"}, {"minimum", 0}};
  log.query = {{"after", "Return entries after this number: the next page.", number},
               {"limit", "Maximum number of results.", number}};
  routes.push_back(std::move(log));
  return routes;
}

}  // namespace

std::vector<Route> operation_routes(service::Service& service) {
  auto routes = access_routes(service);
  routes.push_back({.method = "GET",
                    .path = "/healthz",
                    .operation = "isAlive",
                    .summary = "Liveness: the server answers.",
                    .access = Access::open,
                    .response = {{"type", "object"}},
                    .answer = [](Call&) {
                      return json_response({{"status", "ok"}});
                    }});
  routes.push_back({.method = "GET",
                    .path = "/readyz",
                    .operation = "isReady",
                    .summary = "Readiness: the server can use its database.",
                    .access = Access::open,
                    .response = {{"type", "object"}},
                    .answer = [&service](Call&) { return ready(service); }});
  Route metrics{.method = "GET",
                .path = "/metrics",
                .operation = "getPrometheus",
                .summary = "Metrics in the format of Prometheus.",
                .response = {{"type", "string"}},
                .response_type = "text/plain"};
  metrics.answer = [&service](Call& call) {
    Response response;
    response.type = "text/plain; version=0.0.4; charset=utf-8";
    response.body = prometheus_text(service, call.who);
    return response;
  };
  routes.push_back(std::move(metrics));
  routes.push_back(
      {.method = "GET",
       .path = "/v1/queue",
       .operation = "getQueue",
       .summary = "List your queued jobs in the order in which they start.",
       .response = list_of({{"type", "object"}}),
       .answer = [&service](Call& call) { return queue_of(service, call); }});
  routes.push_back({.method = "GET",
                    .path = "/v1/inputs",
                    .operation = "listInputs",
                    .summary = "List the files and models that jobs may name.",
                    .response = {{"type", "object"}},
                    .answer = [&service](Call&) {
                      return json_response({{"inputs", service.input_names()},
                                            {"models", service.model_names()}});
                    }});
  return routes;
}

}  // namespace lockstep::server
