#include "lockstep/server/detail/problem.h"

#include "lockstep/base/log.h"
#include "lockstep/server/detail/route.h"
#include "lockstep/service/secrets.h"

namespace lockstep::server {
namespace {

using service::Refused;

// Problems of type about:blank have the phrase of HTTP for a title.
std::string_view title_of(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Internal Server Error";
  }
}

}  // namespace

int status_of(service::Refused kind) {
  switch (kind) {
    case Refused::invalid:
      return 400;
    case Refused::unauthorized:
      return 401;
    case Refused::not_allowed:
      return 403;
    case Refused::unknown:
      return 404;
    case Refused::conflict:
      return 409;
    case Refused::too_large:
      return 413;
    case Refused::too_often:
      return 429;
  }
  return 500;
}

Response problem(int status, std::string_view detail) {
  const auto id = service::random_hex(8);
  auto response = json_response({{"type", "about:blank"},
                                 {"title", title_of(status)},
                                 {"status", status},
                                 {"detail", detail},
                                 {"instance", "urn:lockstep:problem:" + id}},
                                status);
  response.type = "application/problem+json";
  if (status == 401) {
    response.headers.emplace_back("WWW-Authenticate", "Bearer realm=\"lockstep\"");
  }
  if (status == 429 || status == 503)
    response.headers.emplace_back("Retry-After", "10");
  return response;
}

Response internal(const std::exception& error) {
  auto response = problem(500, "see the server's log for this instance");
  log::error("server", str("problem ", response.body, ": ", error.what()));
  return response;
}

}  // namespace lockstep::server
