#include <set>

#include "lockstep/base/text.h"
#include "lockstep/config/load.h"
#include "lockstep/config/print.h"
#include "lockstep/server/detail/route.h"

namespace lockstep::server {
namespace {

// Schemas that are no recipe's. A time is text as 2026-11-15T03:22:41.125Z.
constexpr const char* kSchemas = R"json({
  "Problem": {"type": "object", "required": ["title", "status", "detail", "instance"],
    "properties": {"type": {"type": "string"}, "title": {"type": "string"},
      "status": {"type": "integer"}, "detail": {"type": "string"},
      "instance": {"type": "string"}}},
  "JobState": {"type": "string", "enum": ["queued", "planning", "running", "pausing",
    "paused", "stopping", "done", "failed", "cancelled", "interrupted"]},
  "Resources": {"type": "object", "additionalProperties": false, "properties": {
    "cores": {"type": "integer", "minimum": 1, "maximum": 4096},
    "gpus": {"type": "integer", "minimum": 0, "maximum": 64},
    "gpu_ids": {"type": "array", "maxItems": 64,
      "items": {"type": "integer", "minimum": 0, "maximum": 63}},
    "min_memory_bytes": {"type": "integer", "minimum": 0},
    "memory_fraction": {"type": "number", "minimum": 0.05, "maximum": 1}}},
  "Submission": {"type": "object", "required": ["recipe"], "additionalProperties": false,
    "properties": {
      "name": {"type": "string", "maxLength": 200, "pattern": "^[^\\u0000-\\u001f\\u007f]*$"},
      "recipe": {"$ref": "#/components/schemas/Recipe"},
      "inputs": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 200}},
      "priority": {"type": "integer", "minimum": -100, "maximum": 100},
      "max_retries": {"type": "integer", "minimum": 0, "maximum": 100},
      "time_limit_seconds": {"type": "number", "minimum": 1, "maximum": 31536000},
      "needs": {"type": "array", "maxItems": 100, "items": {"type": "string", "maxLength": 80}},
      "resources": {"$ref": "#/components/schemas/Resources"}}},
  "Job": {"type": "object", "required": ["id", "user", "name", "state", "reason", "created"],
    "properties": {
      "id": {"type": "string"}, "user": {"type": "string"}, "name": {"type": "string"},
      "kind": {"type": "string", "enum": ["training", "plan"]},
      "state": {"$ref": "#/components/schemas/JobState"}, "reason": {"type": "string"},
      "priority": {"type": "integer"}, "created": {"type": "string"},
      "changed": {"type": "string"}, "started": {"type": ["string", "null"]},
      "finished": {"type": ["string", "null"]}, "attempt": {"type": "integer"},
      "retries": {"type": "integer"}, "max_retries": {"type": "integer"},
      "time_limit_seconds": {"type": ["number", "null"]},
      "seconds": {"type": "number"}, "gpu_seconds": {"type": "number"},
      "needs": {"type": "array", "items": {"type": "string"}},
      "resources": {"$ref": "#/components/schemas/Resources"},
      "queue_position": {"type": ["integer", "null"]},
      "waits_for": {"type": ["string", "null"]},
      "starts_in_seconds": {"type": ["number", "null"]},
      "history": {"type": "array", "items": {"type": "object"}},
      "run": {"type": ["object", "null"]},
      "plan": {"type": ["object", "null"]}}},
  "Run": {"type": "object", "required": ["id", "user", "job_state", "attempt", "run"],
    "properties": {
      "id": {"type": "string"}, "number": {"type": "integer"}, "user": {"type": "string"},
      "name": {"type": "string"}, "job_state": {"$ref": "#/components/schemas/JobState"},
      "attempt": {"type": "integer"}, "run": {"type": "object"}}},
  "Upload": {"type": "object", "required": ["id", "bytes", "received", "complete"],
    "properties": {"id": {"type": "string"}, "name": {"type": "string"},
      "kind": {"type": "string"}, "bytes": {"type": "integer"},
      "received": {"type": "integer"}, "complete": {"type": "boolean"},
      "sha256": {"type": "string"}, "created": {"type": "string"}}},
  "NewUpload": {"type": "object", "required": ["kind", "bytes", "sha256"],
    "additionalProperties": false, "properties": {
      "name": {"type": "string", "maxLength": 200, "pattern": "^[^\\u0000-\\u001f\\u007f]*$"},
      "kind": {"type": "string", "enum": []},
      "bytes": {"type": "integer", "minimum": 1},
      "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"}}},
  "Token": {"type": "object", "required": ["id", "user", "role"], "properties": {
      "id": {"type": "string"}, "user": {"type": "string"}, "role": {"type": "string"},
      "created": {"type": "string"}, "expires": {"type": ["string", "null"]},
      "revoked": {"type": "boolean"}, "secret": {"type": "string"}}},
  "NewToken": {"type": "object", "required": ["user", "role"], "additionalProperties": false,
    "properties": {"user": {"type": "string", "minLength": 1, "maxLength": 64,
        "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]*$"},
      "role": {"type": "string", "enum": ["viewer", "user", "admin"]},
      "expires_seconds": {"type": "number", "minimum": 1, "maximum": 3153600000}}},
  "NewUser": {"type": "object", "required": ["name"], "additionalProperties": false,
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 64,
        "pattern": "^[A-Za-z0-9][A-Za-z0-9_-]*$"}}},
  "GpuSettings": {"type": "object", "additionalProperties": false, "properties": {
      "use_multi_gpu": {"type": "boolean"},
      "gpu_ids": {"type": ["array", "null"], "maxItems": 64, "items": {"type": "integer", "minimum": 0, "maximum": 63}},
      "distributed_training": {"type": "boolean"},
      "backend": {"type": "string", "enum": ["nccl", "gloo", "auto"]},
      "batch_size_per_gpu": {"type": "integer", "minimum": 1, "maximum": 1048576},
      "gradient_accumulation_steps": {"type": "integer", "minimum": 1, "maximum": 1048576},
      "sync_batch_norm": {"type": "boolean"},
      "mixed_precision": {"type": "boolean"},
      "memory_fraction": {"type": "number", "minimum": 0.05, "maximum": 1},
      "find_unused_parameters": {"type": "boolean"},
      "timeout_minutes": {"type": "number", "minimum": 0.01, "maximum": 10080},
      "timeout_seconds": {"type": "number", "minimum": 0.1, "maximum": 604800}}},
  "TrainingRequest": {"type": "object", "required": ["model_name", "dataset_config"],
    "properties": {
      "model_name": {"type": "string", "minLength": 1, "maxLength": 80},
      "dataset_config": {"type": "object", "properties": {
        "texts": {"type": "array", "minItems": 1, "maxItems": 1000000, "items": {"type": "string"}},
        "file_id": {"type": "string", "maxLength": 80},
        "max_length": {"type": "integer", "minimum": 2, "maximum": 1048576}}},
      "training_config": {"type": "object", "properties": {
        "epochs": {"type": "integer", "minimum": 1, "maximum": 1000000},
        "num_epochs": {"type": "integer", "minimum": 1, "maximum": 1000000},
        "max_steps": {"type": "integer", "minimum": 1, "maximum": 100000000},
        "learning_rate": {"type": "number", "minimum": 0, "maximum": 1000},
        "weight_decay": {"type": "number", "minimum": 0, "maximum": 1000},
        "warmup_steps": {"type": "integer", "minimum": 0, "maximum": 100000000},
        "max_grad_norm": {"type": "number", "minimum": 0, "maximum": 1000000},
        "seed": {"type": "integer", "minimum": 0},
        "batch_size_per_gpu": {"type": "integer", "minimum": 1, "maximum": 1048576},
        "gradient_accumulation_steps": {"type": "integer", "minimum": 1, "maximum": 1048576}}},
      "training_type": {"type": "string", "enum": ["auto", "dataparallel", "distributed"]},
      "world_size": {"type": "integer", "minimum": 1, "maximum": 1024},
      "user_id": {"type": ["integer", "string"]}}}
})json";

// The schema of one knob, from its declaration.
Json knob_schema(const Json& knob) {
  const auto type = knob.at("type").get<std::string>();
  Json schema = {{"description", knob.at("help")}, {"default", knob.at("default")}};
  if (type == "integer" || type == "number") {
    schema["type"] = knob.at("choices").empty() ? Json(type) : Json({type, "string"});
  } else if (text::starts_with(type, "list")) {
    // A value that is no list is a list of one.
    schema["type"] = {"array", "string", "number", "boolean"};
  } else if (text::starts_with(type, "map")) {
    schema["type"] = "object";
  } else if (type == "true or false") {
    schema["type"] = {"boolean", "string"};
  } else {
    schema["type"] = {"string", "number", "boolean"};
  }
  return schema;
}

// A recipe may set what does not name anything of this machine.
Json recipe_schema() {
  const auto local = config::local_keys();
  const std::set<std::string> hidden(local.begin(), local.end());
  Json sections = Json::object();
  const auto reference = Json::parse(config::reference_json());
  for (const auto& knob : reference.at("knobs")) {
    const auto key = knob.at("key").get<std::string>();
    if (hidden.contains(key)) continue;
    const auto dot = key.find('.');
    auto& section = sections[key.substr(0, dot)];
    if (section.is_null()) {
      section = {{"type", "object"}, {"additionalProperties", false}};
    }
    section["properties"][key.substr(dot + 1)] = knob_schema(knob);
  }
  return {{"description",
           "The knobs of the run: sections with keys, or the same as YAML text."},
          {"type", {"object", "string"}},
          {"minLength", 1},
          {"minProperties", 1},
          // Loading it says more, and more precisely.
          {"x-checked-by-loading", true},
          {"properties", sections}};
}

}  // namespace

const Json& component_schemas() {
  static const Json kAll = [] {
    auto schemas = Json::parse(kSchemas);
    schemas["Recipe"] = recipe_schema();
    schemas["NewUpload"]["properties"]["kind"]["enum"] = service::Uploads::kinds();
    // A request may say for itself what its user has set for all.
    schemas["TrainingRequest"]["properties"]["training_config"]["properties"].update(
        schemas["GpuSettings"]["properties"]);
    return schemas;
  }();
  return kAll;
}

}  // namespace lockstep::server
