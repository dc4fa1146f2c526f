#include "lockstep/server/detail/openapi.h"

#include "lockstep/base/text.h"
#include "lockstep/base/version.h"

namespace lockstep::server {
namespace {

Json problem_answer(const std::string& what) {
  return {{"description", what},
          {"content", {{"application/problem+json", {{"schema", ref("Problem")}}}}}};
}

Json parameters_of(const Route& route) {
  Json parameters = Json::array();
  for (const auto& segment : text::split(route.path, '/')) {
    if (segment.empty() || segment[0] != '{') continue;
    parameters.push_back({{"name", segment.substr(1, segment.size() - 2)},
                          {"in", "path"},
                          {"required", true},
                          {"schema", {{"type", "string"}}}});
  }
  for (const auto& parameter : route.query) {
    parameters.push_back({{"name", parameter.name},
                          {"in", "query"},
                          {"required", false},
                          {"description", parameter.help},
                          {"schema", parameter.schema}});
  }
  return parameters;
}

Json responses_of(const Route& route) {
  Json good = {{"description", route.summary}};
  if (!route.response.is_null()) {
    good["content"] = {{route.response_type, {{"schema", route.response}}}};
  }
  Json responses = {{std::to_string(route.status), good}};
  responses["400"] = problem_answer("The request is not valid.");
  if (route.access != Access::open) {
    responses["401"] = problem_answer("A valid token is required.");
    responses["403"] = problem_answer("The token's role does not allow this.");
    responses["429"] = problem_answer("Too many requests.");
  }
  responses["404"] = problem_answer("Not found, or it belongs to another user.");
  if (route.changes) {
    responses["409"] = problem_answer("The current state does not allow this.");
    responses["413"] = problem_answer("Too large.");
  }
  responses["500"] = problem_answer("Internal error; see the server's log.");
  return responses;
}

Json operation_of(const Route& route) {
  Json operation = {{"operationId", route.operation}, {"summary", route.summary}};
  operation["security"] =
      route.access == Access::open ? Json::array() : Json{{{"bearer", Json::array()}}};
  operation["parameters"] = parameters_of(route);
  if (route.body == Body::json) {
    operation["requestBody"] = {
        {"required", !route.body_is_optional},
        {"content", {{"application/json", {{"schema", route.request}}}}}};
  } else if (route.body == Body::bytes) {
    operation["requestBody"] = {
        {"required", true},
        {"content",
         {{"application/octet-stream",
           {{"schema", {{"type", "string"}, {"format", "binary"}}}}}}}};
  }
  operation["responses"] = responses_of(route);
  return operation;
}

}  // namespace

std::string openapi_of(const std::vector<Route>& routes, const Json& components) {
  Json paths = Json::object();
  for (const auto& route : routes) {
    paths[route.path][text::lower(route.method)] = operation_of(route);
  }
  const Json document = {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Lockstep"},
        {"version", std::string(version())},
        {"description", "Trains models on the machine that serves it."}}},
      {"paths", paths},
      {"components",
       {{"schemas", components},
        {"securitySchemes", {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::server
