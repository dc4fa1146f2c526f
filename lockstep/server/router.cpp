#include "lockstep/server/router.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/server/detail/openapi.h"
#include "lockstep/server/detail/problem.h"
#include "lockstep/server/detail/request_checks.h"
#include "lockstep/server/detail/route.h"
#include "lockstep/server/detail/schema.h"
#include "lockstep/server/detail/target.h"
#include "lockstep/server/sse.h"

namespace lockstep::server {
namespace {

using service::Refusal;
using service::Refused;

constexpr std::int64_t kLargestBodyOfNone = 0;

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

}  // namespace

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

std::optional<Response> Router::refuse_sender(const Request& head) {
  if (options_.everybody) return refuse_web_page(head);
  try {
    std::vector<std::string> unused;
    const auto match = find(head.method, head.target, unused);
    if (!match || match->route->access != Access::open) identify(head);
  } catch (const Refusal& refusal) {
    return problem(status_of(refusal.kind()), refusal.what());
  }
  return std::nullopt;
}

Response Router::refuse(int status, std::string_view why) {
  return problem(status, why);
}

Response Router::handle(const Request& request) {
  if (options_.everybody) {
    if (auto refused = refuse_web_page(request)) return std::move(*refused);
  }
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
    if (!match && methods.empty())
      return problem(404, "no such path; GET /openapi.json lists them");
    if (!match) {
      auto refused = problem(405, "method not allowed; see the header Allow");
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
      if (route.changes) audit_refusal(*match, who, refusal);
      throw;
    } catch (const std::exception&) {
      if (route.changes) audit_failure(*match, who);
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
  check_query(route, call);
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

// A flood of requests that are too many would be one of lines, each of which waits for
// the disk: the first of a minute stands for those of its kind.
void Router::audit_refusal(const Match& match, const service::Identity& who,
                           const Refusal& refusal) {
  const auto& route = *match.route;
  const auto key = "audit " + who.token + " " + route.operation;
  if (refusal.kind() == Refused::too_often && !rates_.take(key, 1)) return;
  const auto id = match.path.find("id");
  audit(route, who,
        {id == match.path.end() ? "" : id->second, status_of(refusal.kind())});
}

// The database may be what has failed: the log says so then.
void Router::audit_failure(const Match& match, const service::Identity& who) {
  constexpr int kFailed = 500;
  const auto id = match.path.find("id");
  try {
    audit(*match.route, who, {id == match.path.end() ? "" : id->second, kFailed});
  } catch (const std::exception& error) {
    log::error("server", str("not in the audit log: ", error.what()));
  }
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
