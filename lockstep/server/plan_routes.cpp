// /v1/plans: how a recipe would be trained here, without training it.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/config/load.h"
#include "lockstep/server/detail/route.h"

namespace lockstep::server {
namespace {

using service::JobKind;
using service::Refusal;
using service::Refused;

service::Job plan_job(service::Service& service, const Call& call) {
  auto job = service.job(call.who, call.id());
  if (job.kind != JobKind::plan) {
    throw Refusal(Refused::unknown, "there is no such plan");
  }
  return job;
}

// What names something of this machine is not for clients.
void drop_local_choices(Json& plan) {
  const auto local = config::local_keys();
  auto& choices = plan["choices"];
  Json kept = Json::array();
  for (auto& choice : choices) {
    const auto key = choice.value("key", "");
    if (std::find(local.begin(), local.end(), key) == local.end()) {
      kept.push_back(std::move(choice));
    }
  }
  choices = std::move(kept);
}

Response plan_of(service::Service& service, const Call& call) {
  auto json = json_of(plan_job(service, call));
  json["plan"] = nullptr;
  if (const auto text = service.plan(call.who, call.id())) {
    auto plan = Json::parse(*text, nullptr, false);
    if (plan.is_object()) {
      drop_local_choices(plan);
      json["plan"] = std::move(plan);
    }
  }
  return json_response(json);
}

Response list_plans(service::Service& service, const Call& call) {
  Json items = Json::array();
  auto filter = page_of(call);
  filter.kind = JobKind::plan;
  for (const auto& job : service.jobs(call.who, filter)) {
    items.push_back(json_of(job));
  }
  return json_response({{"items", std::move(items)}});
}

}  // namespace

std::vector<Route> plan_routes(service::Service& service) {
  std::vector<Route> routes;
  routes.push_back(submitting({.path = "/v1/plans",
                               .operation = "makePlan",
                               .summary = "Plan a recipe without training it.",
                               .kind = JobKind::plan},
                              service));
  routes.push_back(
      {.method = "GET",
       .path = "/v1/plans",
       .operation = "listPlans",
       .summary = "List your plans, newest first.",
       .response = list_of(ref("Job")),
       .query = page_parameters(),
       .answer = [&service](Call& call) { return list_plans(service, call); }});
  routes.push_back(
      {.method = "GET",
       .path = "/v1/plans/{id}",
       .operation = "getPlan",
       .summary = "Get a plan with its reasons and predictions, once it is made.",
       .response = ref("Job"),
       .answer = [&service](Call& call) { return plan_of(service, call); }});
  return routes;
}

}  // namespace lockstep::server
