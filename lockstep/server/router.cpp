#include "lockstep/server/router.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/base/text.h"
#include "lockstep/server/detail/openapi.h"
#include "lockstep/server/detail/problem.h"
#include "lockstep/server/detail/route.h"
#include "lockstep/server/detail/schema.h"
#include "lockstep/server/detail/target.h"
#include "lockstep/server/sse.h"

namespace lockstep::server {
namespace {

using service::Refusal;
using service::Refused;

constexpr std::int64_t kLargestBodyOfNone = 0;

// Every request of ours has a few dozen. Objects keep the order of their keys, so that
// a new one is compared with all before it: without a limit a body of 2 MB takes
// minutes.
constexpr int kMostKeys = 10'000;

Json parse_body(const std::string& body, int most_levels) {
  int keys = 0;
  const auto guard = [&](int depth, Json::parse_event_t event, Json&) {
    if (depth > most_levels) {
      throw Refusal(Refused::invalid, "body: more than ", most_levels, " levels");
    }
    if (event == Json::parse_event_t::key && ++keys > kMostKeys) {
      throw Refusal(Refused::invalid, "body: more than ", kMostKeys, " keys");
    }
    return true;
  };
  try {
    return Json::parse(body, guard);
  } catch (const Json::exception& error) {
    throw Refusal(Refused::invalid, "body: ", json_problem(error));
  }
}

std::vector<std::string> segments_of(const std::string& pattern) {
  return text::split(std::string_view(pattern).substr(1), '/');
}

bool is_variable(const std::string& segment) {
  return !segment.empty() && segment[0] == '{';
}

bool fits(const std::vector<std::string>& pattern,
          const std::vector<std::string>& segments) {
  return std::equal(pattern.begin(), pattern.end(), segments.begin(), segments.end(),
                    [](const std::string& wanted, const std::string& segment) {
                      return is_variable(wanted) ? is_id(segment) : wanted == segment;
                    });
}

// The paths that some have a second spelling of: /api/v1/multigpu/..., and what a run
// shows below its job, which has the same id.
void take_other_spelling(std::vector<std::string>& segments) {
  if (segments.size() > 2 && segments[0] == "api" && segments[1] == "v1" &&
      segments[2] == "multigpu") {
    segments.erase(segments.begin(), segments.begin() + 2);
  }
  constexpr std::array<std::string_view, 5> kOfRuns{"metrics", "events", "logs",
                                                    "checkpoints", "weights"};
  if (segments.size() > 3 && segments[0] == "v1" && segments[1] == "jobs" &&
      std::find(kOfRuns.begin(), kOfRuns.end(), segments[3]) != kOfRuns.end()) {
    segments[1] = "runs";
  }
}

// Returns the token that comes with a request; "" if there is none.
std::string secret_of(const Request& request) {
  constexpr std::string_view kBearer = "bearer ";
  const auto header = request.header("authorization");
  if (text::lower(header.substr(0, kBearer.size())) != kBearer) return "";
  return std::string(text::trim(header.substr(kBearer.size())));
}

// The values of a query are texts: a number is compared as one.
void check_query(const Route& route, const Call& call) {
  for (const auto& parameter : route.query) {
    if (!call.query.contains(parameter.name)) continue;
    const auto& type = parameter.schema;
    Json value = call.query.at(parameter.name);
    if (type.value("type", Json()) == "integer") {
      value = call.number(parameter.name, -1);
    }
    const auto wrong = schema_problem(value, type, component_schemas());
    if (wrong.empty()) continue;
    constexpr std::string_view kBody = "body";
    throw Refusal(Refused::invalid, parameter.name, wrong.substr(kBody.size()));
  }
}

}  // namespace

std::int64_t Call::number(const std::string& name, std::int64_t otherwise) const {
  const auto found = query.find(name);
  if (found == query.end()) return otherwise;
  const auto number = text::to_integer(found->second);
  if (!number || *number < 0) {
    throw Refusal(Refused::invalid, name, ": a whole number from 0 on");
  }
  return *number;
}

struct Router::Match {
  const Route* route = nullptr;
  std::map<std::string, std::string> path;
  std::map<std::string, std::string> query;
};

// What a line of the audit log says of a call, beside who and what.
struct Router::AuditedCall {
  std::string target;  // the id of what it was about, "" if none
  int status = 0;
};

// Streams that tokens have open.
struct Router::Counts {
  std::mutex mutex;  // guards the map
  std::map<std::string, int> streams;
};

Router::Router(service::Service& service, RouterOptions options)
    : service_(service),
      options_(std::move(options)),
      counts_(std::make_unique<Counts>()) {
  for (auto* make : {job_routes, plan_routes, run_routes, file_routes, operation_routes,
                     multigpu_routes}) {
    auto some = make(service);
    std::move(some.begin(), some.end(), std::back_inserter(routes_));
  }
  Route document;
  document.method = "GET";
  document.path = "/openapi.json";
  document.operation = "getOpenApi";
  document.summary = "This API, as OpenAPI 3.1.";
  document.access = Access::open;
  document.response = {{"type", "object"}};
  document.answer = [this](Call&) {
    Response response;
    response.body = openapi();
    return response;
  };
  routes_.push_back(std::move(document));
  for (const auto& route : routes_) patterns_.push_back(segments_of(route.path));
}

Router::~Router() = default;

std::vector<RouteInfo> Router::routes() const {
  std::vector<RouteInfo> infos;
  for (const auto& route : routes_) {
    infos.push_back({route.method, route.path, route.operation,
                     route.access == Access::open, route.changes,
                     route.access == Access::admin});
  }
  return infos;
}

std::string Router::openapi() const {
  return openapi_of(routes_, component_schemas());
}

std::string Router::response_problem(const std::string& method, const std::string& path,
                                     const Response& response) const {
  for (const auto& route : routes_) {
    if (route.method != method || route.path != path) continue;
    if (response.status >= 400) {
      return schema_problem(Json::parse(response.body), ref("Problem"),
                            component_schemas());
    }
    if (response.status != route.status) return str("status ", response.status);
    if (route.response_type != "application/json") return "";
    return schema_problem(Json::parse(response.body), route.response,
                          component_schemas());
  }
  return "there is no such route";
}

std::optional<Router::Match> Router::find(std::string_view method,
                                          std::string_view target,
                                          std::vector<std::string>& methods) const {
  auto parsed = parse_target(target);
  if (!parsed) return std::nullopt;
  auto& segments = parsed->segments;
  take_other_spelling(segments);
  for (std::size_t index = 0; index < routes_.size(); ++index) {
    const auto& route = routes_[index];
    const auto& pattern = patterns_[index];
    if (!fits(pattern, segments)) continue;
    if (route.method != method && (method != "HEAD" || route.method != "GET")) {
      methods.push_back(route.method);
      continue;
    }
    Match match{.route = &route, .path = {}, .query = std::move(parsed->query)};
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      if (!is_variable(pattern[i])) continue;
      match.path[pattern[i].substr(1, pattern[i].size() - 2)] = segments[i];
    }
    return match;
  }
  return std::nullopt;
}

AwaitedRequest Router::expect(std::string_view method, std::string_view target) {
  std::vector<std::string> unused;
  const auto match = find(method, target, unused);
  if (!match) return {.body_bytes = service_.limits().body_bytes};
  const auto& route = *match->route;
  AwaitedRequest expected{.waits = route.changes};
  switch (route.body) {
    case Body::none:
      // Clients send "{}" with a POST that needs none.
      expected.body_bytes =
          route.changes ? service_.limits().header_bytes : kLargestBodyOfNone;
      break;
    case Body::json:
      expected.body_bytes = service_.limits().body_bytes;
      break;
    case Body::bytes:
      expected.body_bytes = service_.limits().part_bytes;
      break;
  }
  return expected;
}

Response Router::refuse(int status, std::string_view why) {
  return problem(status, why);
}

Response Router::handle(const Request& request) {
  auto response = answer(request, options_.everybody);
  if (!response.stream || options_.everybody) return response;
  // A token that is revoked or expires ends the streams that it has open.
  response.stream =
      while_allowed(std::move(response.stream), [this, secret = secret_of(request)] {
        return service_.identify(secret).has_value();
      });
  return response;
}

Response Router::handle_as(const Request& request, const service::Identity& who) {
  return answer(request, who);
}

Response Router::answer(const Request& request,
                        const std::optional<service::Identity>& known) {
  try {
    std::vector<std::string> methods;
    const auto match = find(request.method, request.target, methods);
    if (match && match->route->access == Access::open) {
      return call(*match, request, {});
    }
    // Before anything is said about the path: without a token nothing is told.
    const auto who = known ? *known : identify(request);
    if (!match && methods.empty()) return problem(404, "there is no such path");
    if (!match) {
      auto refused = problem(405, "this path has other methods");
      refused.headers.emplace_back("Allow", text::join(methods, ", "));
      return refused;
    }
    const auto& route = *match->route;
    try {
      const auto needed = route.access == Access::admin  ? service::Role::admin
                          : route.access == Access::user ? service::Role::user
                                                         : service::Role::viewer;
      if (who.role < needed) {
        throw Refusal(Refused::not_allowed, "the role ", service::name_of(who.role),
                      " may not do this; it needs ", service::name_of(needed));
      }
      limit(route, who);
      return route.changes ? call_and_audit(*match, request, who)
                           : count_stream(call(*match, request, who), who);
    } catch (const Refusal& refusal) {
      if (route.changes) {
        const auto id = match->path.find("id");
        audit(route, who,
              {id == match->path.end() ? "" : id->second, status_of(refusal.kind())});
      }
      throw;
    }
  } catch (const Refusal& refusal) {
    return problem(status_of(refusal.kind()), refusal.what());
  } catch (const std::exception& error) {
    return internal(error);
  }
}

service::Identity Router::identify(const Request& request) {
  const auto limit = service_.limits().failed_logins_per_minute;
  const auto key = "login " + request.peer;
  if (const auto secret = secret_of(request); !secret.empty()) {
    const auto who = service_.identify(secret);
    if (who) return *who;
    if (!rates_.take(key, limit)) {
      throw Refusal(Refused::too_often, "too many wrong tokens from this address");
    }
    throw Refusal(Refused::unauthorized, "the token is unknown, revoked or expired");
  }
  if (!rates_.take(key, limit)) {
    throw Refusal(Refused::too_often, "too many requests without a token");
  }
  throw Refusal(Refused::unauthorized,
                "send a token: Authorization: Bearer lst_... (lockstep token create)");
}

void Router::limit(const Route& route, const service::Identity& who) {
  const auto limits = service_.limits();
  const auto key = who.token + " " + route.operation;
  const auto most =
      route.changes ? limits.changes_per_minute : limits.requests_per_minute;
  if (rates_.take(key, most)) return;
  throw Refusal(Refused::too_often, "more than ", most,
                " requests a minute of this kind; wait a moment");
}

Response Router::call(const Match& match, const Request& request,
                      const service::Identity& who) {
  const auto& route = *match.route;
  Call call{.request = request, .who = who, .path = match.path, .query = match.query};
  for (const auto& given : call.query) {
    const auto& name = given.first;
    const bool known =
        std::any_of(route.query.begin(), route.query.end(),
                    [&](const Parameter& parameter) { return parameter.name == name; });
    if (!known) {
      throw Refusal(Refused::invalid, "query: unknown parameter '", name.substr(0, 60),
                    "'");
    }
  }
  check_query(route, call);
  if (route.body == Body::bytes && request.body.empty()) {
    throw Refusal(Refused::invalid, "body: is empty");
  }
  const bool left_out = route.body_is_optional && text::trim(request.body).empty();
  if (route.body == Body::json && left_out) {
    call.body = Json::object();
  } else if (route.body == Body::json) {
    call.body = parse_body(request.body, service_.limits().json_depth);
    const auto wrong = schema_problem(call.body, route.request, component_schemas());
    if (!wrong.empty()) throw Refusal(Refused::invalid, wrong);
  }
  auto response = route.answer(call);
  if (response.status == 200) response.status = route.status;
  if (route.changes) {
    const auto id = match.path.find("id");
    audit(route, who,
          {!call.target.empty() || id == match.path.end() ? call.target : id->second,
           response.status});
  }
  return response;
}

Response Router::call_and_audit(const Match& match, const Request& request,
                                const service::Identity& who) {
  if (match.route->is_long) return call(match, request, who);
  Response response;
  // The change and its line in the log are there together, or neither is.
  service_.store().transaction([&] { response = call(match, request, who); });
  return response;
}

void Router::audit(const Route& route, const service::Identity& who,
                   const AuditedCall& call) {
  service::write_audit(service_.store(), {.user = who.user,
                                          .token = who.token,
                                          .action = route.method + " " + route.path,
                                          .target = call.target,
                                          .status = call.status});
}

Response Router::count_stream(Response response, const service::Identity& who) {
  if (!response.stream) return response;
  const auto most = service_.limits().streams_per_token;
  {
    const std::lock_guard lock(counts_->mutex);
    auto& open = counts_->streams[who.token];
    if (open >= most) {
      throw Refusal(Refused::too_often, "this token has ", open,
                    " streams open, limits.streams_per_token is ", most);
    }
    ++open;
  }
  response.on_end = [this, token = who.token] {
    const std::lock_guard lock(counts_->mutex);
    if (--counts_->streams[token] <= 0) counts_->streams.erase(token);
  };
  return response;
}

}  // namespace lockstep::server
