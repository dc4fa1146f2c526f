// /v1/jobs: what people ask for.
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/server/detail/kept_texts.h"
#include "lockstep/server/detail/route.h"

namespace lockstep::server {
namespace {

using service::Milliseconds;
using service::Refusal;
using service::Refused;

std::string time_text(Milliseconds time) {
  return iso_time(WallTime(std::chrono::milliseconds(time)));
}

Json time_or_null(Milliseconds time) {
  return time == 0 ? Json(nullptr) : Json(time_text(time));
}

Json resources_json(const service::Resources& resources) {
  Json json = {{"cores", resources.cores}, {"gpus", resources.gpus}};
  if (!resources.gpu_ids.empty()) json["gpu_ids"] = resources.gpu_ids;
  if (resources.min_memory_bytes > 0) {
    json["min_memory_bytes"] = resources.min_memory_bytes;
  }
  if (resources.memory_fraction > 0) {
    json["memory_fraction"] = resources.memory_fraction;
  }
  return json;
}

// What is not said stays as it is in `resources`.
service::Resources resources_of(const Json& json, service::Resources resources = {}) {
  resources.cores = json.value("cores", resources.cores);
  if (json.contains("gpus") || json.contains("gpu_ids")) {
    resources.gpu_ids = json.value("gpu_ids", std::vector<int>{});
    resources.gpus = json.value("gpus", static_cast<int>(resources.gpu_ids.size()));
  }
  resources.min_memory_bytes =
      json.value("min_memory_bytes", resources.min_memory_bytes);
  resources.memory_fraction = json.value("memory_fraction", resources.memory_fraction);
  if (!resources.gpu_ids.empty() &&
      resources.gpus != static_cast<int>(resources.gpu_ids.size())) {
    throw Refusal(Refused::invalid, "resources: gpus=", resources.gpus,
                  ", but gpu_ids "
                  "names ",
                  resources.gpu_ids.size(), "; leave one of them out");
  }
  return resources;
}

// A job whose run is still to be put in, behind the other keys.
Json job_without_run(service::Service& service, const service::JobAndHistory& known) {
  const auto& job = known.job;
  auto json = server::json_of(job);
  if (job.state == service::JobState::queued) {
    const auto queue = service.queue();
    for (const auto& place : *queue) {
      if (place.turn.job != job.id) continue;
      json["queue_position"] = place.position;
      json["waits_for"] = place.turn.reason;
      json["starts_in_seconds"] =
          place.starts_in_seconds ? Json(*place.starts_in_seconds) : Json(nullptr);
    }
  }
  json["history"] = Json::array();
  for (const auto& change : known.history) {
    json["history"].push_back({{"time", time_text(change.time)},
                               {"state", service::name_of(change.state)},
                               {"reason", change.reason}});
  }
  return json;
}

using JobTexts = KeptTexts<service::JobAndHistory>;

Response whole_job(service::Service& service, const Call& call, JobTexts& texts) {
  const auto known = service.job_now(call.who, call.id());
  const auto make = [&] {
    return json_response(job_without_run(service, *known)).body;
  };
  const auto run = service.runs().view(service.folder_of(known->job));
  Response response;
  // The place in the queue changes without the job.
  response.body = known->job.state == service::JobState::queued
                      ? make()
                      : texts.of(known->job.id, known, make);
  response.body.pop_back();
  response.body += ",\"run\":";
  response.body += run.empty() ? "null" : run;
  response.body += '}';
  return response;
}

service::Submission submission_of(const Call& call) {
  const auto& body = call.body;
  service::Submission wanted;
  wanted.name = body.value("name", "");
  const auto& recipe = body.at("recipe");
  wanted.recipe.text = recipe.is_string() ? recipe.get<std::string>() : recipe.dump();
  wanted.recipe.inputs = body.value("inputs", std::map<std::string, std::string>{});
  wanted.priority = body.value("priority", 0);
  wanted.max_retries = body.value("max_retries", 0);
  wanted.time_limit =
      static_cast<Milliseconds>(body.value("time_limit_seconds", 0.0) * 1000);
  wanted.needs = body.value("needs", std::vector<std::string>{});
  if (body.contains("resources")) wanted.resources = resources_of(body["resources"]);
  wanted.request = call.request.body;
  return wanted;
}

Response list_jobs(service::Service& service, const Call& call) {
  auto filter = page_of(call);
  const auto state = call.query.find("state");
  if (state != call.query.end()) filter.state = service::job_state_of(state->second);
  Json items = Json::array();
  for (const auto& job : service.jobs(call.who, filter)) {
    items.push_back(server::json_of(job));
  }
  return json_response({{"items", std::move(items)}});
}

Route action(const std::string& name, const std::string& summary,
             std::function<service::Job(Call&)> act) {
  Route route;
  route.method = "POST";
  route.path = "/v1/jobs/{id}/" + name;
  route.operation = name + "Job";
  route.summary = summary;
  route.access = Access::user;
  route.changes = true;
  route.response = ref("Job");
  route.answer = [act = std::move(act)](Call& call) {
    return json_response(server::json_of(act(call)));
  };
  return route;
}

}  // namespace

Json json_of(const service::Job& job) {
  return {{"id", job.id},
          {"number", job.number},
          {"user", job.user},
          {"name", job.name},
          {"kind", service::name_of(job.kind)},
          {"state", service::name_of(job.state)},
          {"reason", job.reason},
          {"priority", job.priority},
          {"created", time_text(job.created)},
          {"changed", time_text(job.changed)},
          {"started", time_or_null(job.started)},
          {"finished", time_or_null(job.finished)},
          {"attempt", job.attempt},
          {"retries", job.retries},
          {"max_retries", job.max_retries},
          {"time_limit_seconds",
           job.time_limit == 0 ? Json(nullptr)
                               : Json(static_cast<double>(job.time_limit) / 1000)},
          {"seconds", job.seconds},
          {"gpu_seconds", job.gpu_seconds},
          {"needs", job.needs},
          {"resources", resources_json(job.resources)}};
}

Route submitting(const SubmittingRoute& wanted, service::Service& service) {
  return {.method = "POST",
          .path = wanted.path,
          .operation = wanted.operation,
          .summary = wanted.summary,
          .access = Access::user,
          .changes = true,
          .body = Body::json,
          .request = ref("Submission"),
          .response = ref("Job"),
          .status = 201,
          .answer = [&service, kind = wanted.kind](Call& call) {
            auto submission = submission_of(call);
            submission.kind = kind;
            const auto job = service.submit(call.who, submission);
            call.target = job.id;
            return json_response(json_of(job));
          }};
}

service::JobFilter page_of(const Call& call) {
  constexpr std::int64_t kMost = 1000;
  service::JobFilter filter;
  filter.kind = service::JobKind::training;
  filter.limit = static_cast<int>(std::min(call.number("limit", 100), kMost));
  filter.before = call.number("before", 0);
  return filter;
}

std::vector<Parameter> page_parameters() {
  return {
      {"limit", "Maximum number of results.", {{"type", "integer"}, {"minimum", 1}}},
      {"before",
       "Return jobs before this number: the next page.",
       {{"type", "integer"}, {"minimum", 0}}}};
}

std::vector<Route> job_routes(service::Service& service) {
  std::vector<Route> routes;
  routes.push_back(submitting({.path = "/v1/jobs",
                               .operation = "submitJob",
                               .summary = "Submit a training job.",
                               .kind = service::JobKind::training},
                              service));
  routes.push_back(
      {.method = "GET",
       .path = "/v1/jobs",
       .operation = "listJobs",
       .summary = "List your jobs, newest first; an admin sees those of all users.",
       .response = list_of(ref("Job")),
       .query = page_parameters(),
       .answer = [&service](Call& call) { return list_jobs(service, call); }});
  routes.back().query.push_back({"state", "Only jobs in this state.", ref("JobState")});
  routes.push_back(
      {.method = "GET",
       .path = "/v1/jobs/{id}",
       .operation = "getJob",
       .summary = "Get a job: state, place in the queue, history, run.",
       .response = ref("Job"),
       .answer = [&service, texts = std::make_shared<JobTexts>()](Call& call) {
         return whole_job(service, call, *texts);
       }});
  routes.push_back(
      action("cancel", "Cancel a job; a running one saves a checkpoint first.",
             [&service](Call& call) { return service.cancel(call.who, call.id()); }));
  routes.push_back(
      action("pause", "Pause a job: it saves a checkpoint and releases its resources.",
             [&service](Call& call) { return service.pause(call.who, call.id()); }));
  auto resume = action("resume", "Resume a paused job from its newest checkpoint.",
                       [&](Call&) { return service::Job(); });
  resume.body = Body::json;
  resume.body_is_optional = true;
  resume.request = {{"type", "object"},
                    {"additionalProperties", false},
                    {"properties", {{"resources", ref("Resources")}}}};
  resume.answer = [&service](Call& call) {
    std::optional<service::Resources> resources;
    if (call.body.contains("resources")) {
      resources = resources_of(call.body["resources"],
                               service.job(call.who, call.id()).resources);
    }
    return json_response(
        server::json_of(service.resume(call.who, call.id(), resources)));
  };
  routes.push_back(std::move(resume));
  routes.push_back({.method = "DELETE",
                    .path = "/v1/jobs/{id}",
                    .operation = "removeJob",
                    .summary = "Delete a finished job and its run directory.",
                    .access = Access::user,
                    .changes = true,
                    .response = {{"type", "object"}},
                    .answer = [&service](Call& call) {
                      service.remove(call.who, call.id());
                      return json_response({{"removed", call.id()}});
                    }});
  return routes;
}

}  // namespace lockstep::server
