#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/server/http.h"
#include "lockstep/service/service.h"

// One operation of the API: all that is known of it, so that checking, answering and
// describing it (OpenAPI) can not disagree.
namespace lockstep::server {

using Json = nlohmann::ordered_json;

// Who may ask. What a user may see of others' things is decided by the service.
enum class Access { open, viewer, user, admin };

// A request that was checked.
struct Call {
  const Request& request;
  service::Identity who;
  std::map<std::string, std::string> path = {};
  std::map<std::string, std::string> query = {};
  Json body = {};
  std::string target = {};  // the id of what was made, for the audit log

  std::string id() const { return path.at("id"); }
  std::int64_t number(const std::string& name, std::int64_t otherwise) const;
};

struct Parameter {
  std::string name;
  std::string help;
  Json schema;
};

enum class Body { none, json, bytes };

struct Route {
  std::string method;
  std::string path;  // "/v1/jobs/{id}"
  std::string operation;
  std::string summary;
  Access access = Access::viewer;
  // True for what changes something: it is in the audit log, in one transaction with
  // the change.
  bool changes = false;
  // The change is more than rows of the database, and takes its time: its line in the
  // audit log comes after it.
  bool is_long = false;
  Body body = Body::none;
  bool body_is_optional = false;
  Json request = {};   // schema of the body
  Json response = {};  // schema of the answer
  std::string response_type = "application/json";
  int status = 200;
  std::vector<Parameter> query = {};
  std::function<Response(Call&)> answer;
};

// Returns a schema by its name in components.
inline Json ref(const std::string& name) {
  return {{"$ref", "#/components/schemas/" + name}};
}

// Returns {"items": [...]}.
inline Json list_of(const Json& item) {
  return {{"type", "object"},
          {"required", {"items"}},
          {"properties", {{"items", {{"type", "array"}, {"items", item}}}}}};
}

inline Response json_response(const Json& json, int status = 200) {
  Response response;
  response.status = status;
  response.body = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return response;
}

// The schemas that routes refer to.
const Json& component_schemas();

std::vector<Route> job_routes(service::Service& service);
std::vector<Route> plan_routes(service::Service& service);
std::vector<Route> run_routes(service::Service& service);
std::vector<Route> file_routes(service::Service& service);
std::vector<Route> operation_routes(service::Service& service);
std::vector<Route> multigpu_routes(service::Service& service);

Json json_of(const service::Job& job);

// What is read from a run directory, without its place on this machine; null before
// there is one.
Json run_json(service::Service& service, const service::JobFolder& folder);

// A route by which somebody asks for a job.
struct SubmittingRoute {
  std::string path;
  std::string operation;
  std::string summary;
  service::JobKind kind = service::JobKind::training;
};

Route submitting(const SubmittingRoute& wanted, service::Service& service);

// The trainings that a page of a list shows, and the parameters that say which.
service::JobFilter page_of(const Call& call);
std::vector<Parameter> page_parameters();

}  // namespace lockstep::server
