#include "lockstep/server/detail/request_checks.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/base/text.h"
#include "lockstep/config/server.h"
#include "lockstep/server/detail/problem.h"
#include "lockstep/server/detail/schema.h"

namespace lockstep::server {
namespace {

using service::Refusal;
using service::Refused;

// Every request of ours has a few dozen. Objects keep the order of their keys, so that
// a new one is compared with all before it: without a limit a body of 2 MB takes
// minutes.
constexpr int kMostKeys = 10'000;

// Returns "::1" of "[::1]:8477", "localhost" of "localhost:8477".
std::string_view name_in_host(std::string_view host) {
  const auto end =
      text::starts_with(host, "[") ? host.find(']') : std::string_view::npos;
  if (end == std::string_view::npos) return host.substr(0, host.find(':'));
  const bool is_whole = end + 1 == host.size() || host[end + 1] == ':';
  return is_whole ? host.substr(1, end - 1) : host;
}

}  // namespace

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

std::string secret_of(const Request& request) {
  constexpr std::string_view kBearer = "bearer ";
  const auto header = request.header("authorization");
  if (text::lower(header.substr(0, kBearer.size())) != kBearer) return "";
  return std::string(text::trim(header.substr(kBearer.size())));
}

std::optional<Response> refuse_web_page(const Request& request) {
  constexpr int kNotAllowed = 403;
  if (!request.header("origin").empty()) {
    return problem(kNotAllowed,
                   "a server without tokens (--insecure-local) does not answer web "
                   "pages; start it without that flag, and send a token");
  }
  const auto host = request.header("host");
  if (host.empty() || config::is_loopback(text::lower(name_in_host(host)))) {
    return std::nullopt;
  }
  return problem(kNotAllowed,
                 "Host: a server without tokens (--insecure-local) is asked as "
                 "127.0.0.1 or localhost only");
}

void check_query(const Route& route, const Call& call) {
  for (const auto& [name, value] : call.query) {
    const bool known = std::any_of(route.query.begin(), route.query.end(),
                                   [&wanted = name](const Parameter& parameter) {
                                     return parameter.name == wanted;
                                   });
    if (!known) {
      throw Refusal(Refused::invalid, "query: unknown parameter '", name.substr(0, 60),
                    "'");
    }
  }
  for (const auto& parameter : route.query) {
    if (!call.query.contains(parameter.name)) continue;
    const auto& type = parameter.schema;
    // The values of a query are texts: a number is compared as one.
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

std::int64_t Call::number(const std::string& name, std::int64_t otherwise) const {
  const auto found = query.find(name);
  if (found == query.end()) return otherwise;
  const auto number = text::to_integer(found->second);
  if (!number || *number < 0) {
    throw Refusal(Refused::invalid, name, ": a whole number from 0 on");
  }
  return *number;
}

}  // namespace lockstep::server
