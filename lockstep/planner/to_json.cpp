#include <nlohmann/json.hpp>

#include "lockstep/base/str.h"
#include "lockstep/planner/plan.h"

namespace lockstep::planner {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Candidate& candidate) {
  return {{"strategy", name_of(candidate.method)},
          {"ranks", candidate.ranks},
          {"micro", candidate.micro},
          {"accumulation", candidate.accumulation},
          {"recompute", candidate.recompute},
          {"offload", candidate.offload},
          {"shard_group", candidate.sharers()}};
}

std::int64_t whole(double bytes) {
  return static_cast<std::int64_t>(bytes);
}

Json json_of(const MemoryCost& memory) {
  return {{"parameters_bytes", whole(memory.parameters)},
          {"gradients_bytes", whole(memory.gradients)},
          {"optimizer_bytes", whole(memory.optimizer)},
          {"master_bytes", whole(memory.master)},
          {"average_bytes", whole(memory.average)},
          {"buffers_bytes", whole(memory.buffers)},
          {"activations_bytes", whole(memory.activations)},
          {"transient_bytes", whole(memory.transient)},
          {"buckets_bytes", whole(memory.buckets)},
          {"batches_bytes", whole(memory.batches)},
          {"process_bytes", whole(memory.process)},
          {"fragmentation_bytes", whole(memory.fragmentation)},
          {"tensors_bytes", whole(memory.tensors())},
          {"peak_bytes", whole(memory.peak())}};
}

Json json_of(const TimeCost& time) {
  return {{"compute_seconds", time.compute},   {"update_seconds", time.update},
          {"exchange_seconds", time.exchange}, {"exposed_seconds", time.exposed},
          {"wait_seconds", time.wait},         {"offload_seconds", time.offload},
          {"load_seconds", time.load},         {"data_wait_seconds", time.data_wait},
          {"step_seconds", time.step()},       {"host_bound", time.host_bound}};
}

Json json_of(const Prediction& prediction) {
  auto json = json_of(prediction.candidate);
  json["memory"] = json_of(prediction.memory);
  json["limit_bytes"] = whole(prediction.limit);
  json["time"] = json_of(prediction.time);
  json["samples_per_second"] = prediction.samples_per_second;
  return json;
}

Json json_of(const Correction& correction) {
  return {{"runs", correction.runs},
          {"time_factor", correction.time},
          {"time_spread", correction.time_spread},
          {"host_time_factor", correction.host_time},
          {"host_time_spread", correction.host_time_spread},
          {"memory_factor", correction.memory},
          {"process_bytes", whole(correction.memory_bytes)},
          {"memory_spread", correction.memory_spread}};
}

void add_prediction(const Plan& plan, Json& document) {
  document["model"] = plan.model;
  document["prediction"] = json_of(*plan.prediction);
  document["prediction"]["bottleneck"] = plan.bottleneck;
  document["prediction"]["seconds"] =
      plan.seconds ? Json(*plan.seconds) : Json(nullptr);
  document["efficiency"] = {{"flops_per_sample", plan.flops_per_sample},
                            {"peak_flops", plan.peak_flops}};
  document["correction"] = json_of(plan.correction);
  auto scaling = Json::array();
  for (const auto& [ranks, speed_up, lacks] : plan.scaling) {
    scaling.push_back({{"ranks", ranks}, {"speed_up", speed_up}, {"lacks", lacks}});
  }
  document["scaling"] = scaling;
  auto candidates = Json::array();
  for (const auto& [prediction, lost] : plan.candidates) {
    auto row = json_of(prediction.candidate);
    row["peak_bytes"] = whole(prediction.memory.peak());
    row["step_seconds"] = prediction.time.step();
    row["samples_per_second"] = prediction.samples_per_second;
    row["lost"] = lost;
    candidates.push_back(row);
  }
  document["candidates"] = candidates;
  document["hints"] = plan.hints;
}

}  // namespace

std::string to_json(const Plan& plan) {
  Json choices = Json::array();
  for (const auto& [key, value, because] : plan.choices) {
    choices.push_back({{"key", key}, {"value", value}, {"because", because}});
  }
  Json document = {{"version", 1}, {"choices", choices}};
  if (plan.prediction) add_prediction(plan, document);
  auto environment = Json::array();
  for (const auto& [name, value, because] : plan.environment) {
    environment.push_back({{"name", name}, {"value", value}, {"because", because}});
  }
  document["environment"] = environment;
  document["notes"] = plan.notes;
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::planner
