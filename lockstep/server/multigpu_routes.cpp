// /multigpu (and /api/v1/multigpu): the operations that users of earlier trainers call,
// with the bodies that they send.
#include <algorithm>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/hardware/choose_gpus.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/server/detail/multigpu.h"
#include "lockstep/server/detail/route.h"
#include "lockstep/service/job_files.h"

namespace lockstep::server {
namespace {

using service::JobKind;
using service::Refusal;
using service::Refused;

Json gpu_stats(const hardware::Gpu& gpu, const service::Pool& pool) {
  const auto value = [](const auto& optional) {
    return optional ? Json(*optional) : Json(nullptr);
  };
  std::string problem;
  for (const auto& found : pool.problems) {
    if (found.gpu == gpu.index) problem = found.reason;
  }
  return {{"gpu_id", gpu.index},
          {"name", gpu.name},
          {"memory_total_bytes", gpu.memory_total_bytes},
          {"memory_used_bytes", value(gpu.status.memory_used_bytes)},
          {"utilization_percent", value(gpu.status.utilization_percent)},
          {"temperature_celsius", value(gpu.status.temperature_celsius)},
          {"power_watts", value(gpu.status.power_watts)},
          {"healthy", problem.empty()},
          {"problem", problem}};
}

Json resource_status(service::Service& service) {
  const auto pool = service.pool();
  double cores = 0;
  double gpus = 0;
  for (const auto& lease : service.store().leases()) {
    (lease.is_gpu ? gpus : cores) += lease.share;
  }
  return {{"cores", pool.cores.size()},
          {"cores_in_use", cores},
          {"gpus", pool.gpus.size()},
          {"gpus_in_use", gpus},
          {"memory_total_bytes", pool.machine.memory_total_bytes},
          {"memory_available_bytes", pool.machine.memory_available_bytes}};
}

Json health(service::Service& service) {
  const auto pool = service.pool();
  Json problems = Json::array();
  for (const auto& problem : pool.problems) {
    problems.push_back({{"gpu_id", problem.gpu}, {"problem", problem.reason}});
  }
  return {{"status", problems.empty() ? "healthy" : "degraded"},
          {"gpu_count", pool.gpus.size()},
          {"device", pool.gpus.empty() ? "cpu" : "cuda"},
          {"note", pool.machine.gpu_note},
          {"problems", std::move(problems)}};
}

Json recommendations(service::Service& service) {
  const auto pool = service.pool();
  Json items = Json::array();
  for (const auto& problem : pool.problems) {
    items.push_back({{"gpu_id", problem.gpu}, {"recommendation", problem.reason}});
  }
  for (const auto& gpu : pool.machine.gpus) {
    const auto used = gpu.status.memory_used_bytes.value_or(0);
    constexpr double kFull = 0.95;
    if (gpu.memory_total_bytes > 0 &&
        static_cast<double>(used) >
            kFull * static_cast<double>(gpu.memory_total_bytes)) {
      items.push_back(
          {{"gpu_id", gpu.index},
           {"recommendation", str(used, " of ", gpu.memory_total_bytes,
                                  " bytes are in use; a smaller batch_size_per_gpu, or "
                                  "gradient_accumulation_steps, leaves room")}});
    }
  }
  if (pool.gpus.empty()) {
    items.push_back(
        {{"gpu_id", nullptr},
         {"recommendation", str("no GPU (", pool.machine.gpu_note, "): jobs train on ",
                                pool.cores.size(), " CPU cores; keep models small")}});
  }
  return {{"items", std::move(items)}};
}

Json performance(service::Service& service, const Call& call) {
  Json items = Json::array();
  for (const auto& job :
       service.jobs(call.who, {.state = service::JobState::running})) {
    const service::JobFile file(service.folder(call.who, job.id), "run/metrics.jsonl");
    const auto last = monitor::last_metrics(file.path(), monitor::Split::train);
    Json item = {{"job_id", job.id}, {"step", nullptr}};
    if (last) {
      item["step"] = last->step;
      item["loss"] = last->loss;
      for (const auto* name : {"samples_per_second", "tokens_per_second",
                               "step_seconds", "memory_peak_bytes"}) {
        if (const auto number = last->find(name)) item[name] = *number;
      }
    }
    items.push_back(std::move(item));
  }
  return {{"items", std::move(items)}};
}

Json history(service::Service& service, const Call& call) {
  Json items = Json::array();
  for (const auto& job : service.jobs(call.who, {.kind = JobKind::training})) {
    items.push_back(json_of(job));
  }
  return {{"items", std::move(items)}};
}

std::vector<int> free_gpus(service::Service& service, const service::Pool& pool) {
  auto gpus = pool.gpus;
  for (const auto& lease : service.store().leases()) {
    if (lease.is_gpu) std::erase(gpus, lease.unit);
  }
  return gpus;
}

// Runs `lockstep gpus test`, which is a process with a time limit, on GPUs that no job
// has. One at a time: each has a thread for itself that others' changes wait for.
Response gpu_test(service::Service& service, std::mutex& only_one) {
  const std::unique_lock lock(only_one, std::try_to_lock);
  if (!lock)
    throw Refusal(Refused::too_often, "the GPUs are being tested; wait for it");
  const auto pool = service.pool();
  const auto gpus = free_gpus(service, pool);
  if (gpus.empty()) {
    return json_response(
        {{"passed", false},
         {"problem", pool.gpus.empty() ? "there is no GPU: " + pool.machine.gpu_note
                                       : "jobs have all GPUs; wait for them"},
         {"gpu_ids", gpus},
         {"result", nullptr}});
  }
  constexpr std::chrono::minutes kLimit{2};
  const auto output = process::run(
      {.arguments = {service.caller().executable, "gpus", "test", "--json"},
       .environment = {{"CUDA_VISIBLE_DEVICES",
                        hardware::visible_devices(pool.machine, gpus)}},
       .out = process::StreamMode::pipe,
       .err = process::StreamMode::pipe},
      kLimit);
  const auto parsed = Json::parse(output.out, nullptr, false);
  return json_response(
      {{"passed", output.end.ok()},
       {"problem", output.end.ok() ? "" : process::describe(output.end)},
       {"gpu_ids", gpus},
       {"result", parsed.is_discarded() ? Json(nullptr) : parsed}});
}

struct Operation {
  const char* method;
  const char* path;
  const char* name;
  const char* summary;
};

Route multigpu(const Operation& operation, std::function<Response(Call&)> answer) {
  Route route;
  route.method = operation.method;
  route.path = str("/multigpu/", operation.path);
  route.operation = operation.name;
  route.summary = operation.summary;
  route.response = {{"type", "object"}};
  route.answer = std::move(answer);
  if (route.method == "POST") {
    route.changes = true;
    route.access = Access::user;
  }
  return route;
}

Route training(service::Service& service, const Operation& operation,
               const std::string& type) {
  auto route = multigpu(operation, [&service, type](Call& call) {
    const auto job = service.submit(call.who, training_of(service, call, type));
    call.target = job.id;
    auto json = json_of(job);
    json["job_id"] = job.id;
    json["status"] = service::name_of(job.state);
    json["ignored"] = ignored_keys(call.body);
    return json_response(json);
  });
  route.body = Body::json;
  route.request = ref("TrainingRequest");
  route.status = 201;
  return route;
}

std::vector<Route> settings_routes(service::Service& service) {
  std::vector<Route> routes;
  routes.push_back(multigpu(
      {"GET", "config", "getGpuConfig", "Get your settings, merged with the defaults."},
      [&service](Call& call) {
        return json_response(gpu_settings(service, call.who));
      }));
  // `config` and `training/config` are one thing under two names.
  for (const auto& operation :
       {Operation{"POST", "config", "setGpuConfig", "Save settings for your jobs."},
        Operation{"POST", "training/config", "setTrainingConfig",
                  "Save settings for your jobs."}}) {
    auto route = multigpu(operation, [&service](Call& call) {
      keep_gpu_settings(service, call);
      return json_response(gpu_settings(service, call.who));
    });
    route.body = Body::json;
    route.request = ref("GpuSettings");
    routes.push_back(std::move(route));
  }
  return routes;
}

Response one_gpu(service::Service& service, const Call& call) {
  const auto pool = service.pool();
  const auto wanted = text::to_integer(call.id());
  for (const auto& gpu : pool.machine.gpus) {
    if (wanted && gpu.index == *wanted) return json_response(gpu_stats(gpu, pool));
  }
  throw Refusal(Refused::unknown, "there is no GPU ", call.id(), "; there are ",
                pool.machine.gpus.size());
}

}  // namespace

std::vector<Route> multigpu_routes(service::Service& service) {
  auto routes = settings_routes(service);
  const auto add = [&](const Operation& operation,
                       std::function<Response(Call&)> answer) -> Route& {
    routes.push_back(multigpu(operation, std::move(answer)));
    return routes.back();
  };
  add({"GET", "health", "getGpuHealth", "Check whether jobs can run, and why not."},
      [&service](Call&) { return json_response(health(service)); });
  add({"GET", "stats", "getGpuStats", "Get the state of all GPUs."}, [&service](Call&) {
    const auto pool = service.pool();
    Json items = Json::array();
    for (const auto& gpu : pool.machine.gpus) items.push_back(gpu_stats(gpu, pool));
    auto json = resource_status(service);
    json["items"] = std::move(items);
    return json_response(json);
  });
  add({"GET", "gpu/{id}/stats", "getOneGpuStats", "Get the state of a GPU."},
      [&service](Call& call) { return one_gpu(service, call); });
  routes.push_back(
      training(service,
               {"POST", "training/dataparallel", "trainDataParallel",
                "Submit a training job with threads of one process (DataParallel)."},
               "dataparallel"));
  routes.push_back(
      training(service,
               {"POST", "training/distributed", "trainDistributed",
                "Submit a training job with one process per device (DDP)."},
               "distributed"));
  routes.push_back(
      training(service,
               {"POST", "training/auto", "trainAuto",
                "Submit a training job with the strategy that the planner chooses."},
               ""));
  auto& manage = add({"POST", "resources/manage", "manageResources",
                      "Get resource usage, or remove what is past its retention time."},
                     [&service](Call& call) {
                       auto json = resource_status(service);
                       if (call.body.value("action", "status") == "cleanup") {
                         if (call.who.role != service::Role::admin) {
                           throw Refusal(Refused::not_allowed,
                                         "action cleanup needs the role admin");
                         }
                         json["removed"] = service.clean_up();
                       }
                       return json_response(json);
                     });
  manage.body = Body::json;
  manage.body_is_optional = true;
  manage.request = {
      {"type", "object"},
      {"properties",
       {{"action", {{"type", "string"}, {"enum", {"status", "cleanup"}}}}}}};
  add({"GET", "resources/status", "getResources", "Get resource usage."},
      [&service](Call&) { return json_response(resource_status(service)); });
  add({"GET", "performance/metrics", "getPerformance",
       "Get the training speed of your jobs."},
      [&service](Call& call) { return json_response(performance(service, call)); });
  add({"GET", "training/history", "getTrainingHistory",
       "List your jobs, newest first."},
      [&service](Call& call) { return json_response(history(service, call)); });
  add({"POST", "gpu/test", "testGpus", "Test whether the GPUs compute correctly."},
      [&service, only_one = std::make_shared<std::mutex>()](Call&) {
        return gpu_test(service, *only_one);
      })
      .is_long = true;
  add({"GET", "gpu/recommendations", "getRecommendations",
       "List recommended changes, with GPU, number and remedy."},
      [&service](Call&) { return json_response(recommendations(service)); });
  return routes;
}

}  // namespace lockstep::server
