#include "lockstep/server/detail/multigpu.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::server {
namespace {

using service::Refusal;
using service::Refused;

Json default_settings() {
  return {{"use_multi_gpu", true},          {"gpu_ids", nullptr},
          {"distributed_training", true},   {"backend", "auto"},
          {"batch_size_per_gpu", 8},        {"gradient_accumulation_steps", 1},
          {"sync_batch_norm", false},       {"mixed_precision", false},
          {"find_unused_parameters", false}};
}

const Json& properties_of(const char* schema) {
  return component_schemas().at(schema).at("properties");
}

std::string strategy_of(const std::string& type) {
  if (type == "dataparallel") return "data_parallel";
  return type == "distributed" ? "ddp" : "auto";
}

// How many devices a request wants, and which.
service::Resources devices_of(const service::Pool& pool, const Json& settings,
                              int world_size) {
  service::Resources resources;
  if (pool.gpus.empty()) {
    resources.cores = std::max(1, world_size);
    return resources;
  }
  if (settings["gpu_ids"].is_array() && !settings["gpu_ids"].empty()) {
    resources.gpu_ids = settings["gpu_ids"].get<std::vector<int>>();
    resources.gpus = static_cast<int>(resources.gpu_ids.size());
  } else if (world_size > 0) {
    resources.gpus = world_size;
  } else {
    resources.gpus =
        settings["use_multi_gpu"].get<bool>() ? static_cast<int>(pool.gpus.size()) : 1;
  }
  resources.memory_fraction = settings.value("memory_fraction", 0.0);
  return resources;
}

// How a request wants its training to be spread.
struct Spread {
  std::string type;  // dataparallel, distributed, or "" for what fits the machine
  int ranks = 0;     // 0: not said
};

Json parallel_of(const Json& settings, const Spread& spread) {
  const auto& [type, ranks] = spread;
  Json parallel = {
      {"strategy", ranks == 1 && type.empty() ? "auto" : strategy_of(type)},
      {"find_unused_parameters", settings["find_unused_parameters"]},
      {"sync_batch_norm", settings["sync_batch_norm"]}};
  if (ranks > 0) parallel["ranks"] = ranks;
  return parallel;
}

Json train_of(const Json& training) {
  Json train = Json::object();
  if (training.contains("max_steps")) {
    train["steps"] = training["max_steps"];
  } else {
    train["epochs"] = training.value("epochs", training.value("num_epochs", 1));
  }
  return train;
}

// The share of the samples that the model is evaluated on: a tenth, and of few texts
// one.
double held_back(const Json& dataset) {
  constexpr double kTenth = 0.1;
  if (!dataset.contains("texts")) return kTenth;
  const auto texts = std::max<std::size_t>(2, dataset["texts"].size());
  constexpr double kOneRounded = 1.2;
  return std::max(kTenth, kOneRounded / static_cast<double>(texts));
}

// A knob that does nothing beside the others is refused by none of these.
Json recipe_of(const Json& body, const Json& settings, const Spread& spread) {
  const auto training = body.value("training_config", Json::object());
  const auto dataset = body.at("dataset_config");
  Json recipe;
  recipe["model"] = {{"name", "gpt"}};
  recipe["data"] = {{"name", "text"}, {"split", held_back(dataset)}};
  if (dataset.contains("max_length")) {
    recipe["data"]["sequence"] = dataset["max_length"];
  }
  recipe["train"] = train_of(training);
  recipe["batch"] = {
      {"per_rank",
       training.value("batch_size_per_gpu", settings["batch_size_per_gpu"].get<int>()) *
           training.value("gradient_accumulation_steps",
                          settings["gradient_accumulation_steps"].get<int>())},
      {"accumulation",
       training.value("gradient_accumulation_steps",
                      settings["gradient_accumulation_steps"].get<int>())}};
  recipe["optim"] = {{"name", "adamw"}};
  if (training.contains("learning_rate")) {
    recipe["optim"]["lr"] = training["learning_rate"];
  }
  if (training.contains("weight_decay")) {
    recipe["optim"]["weight_decay"] = training["weight_decay"];
  }
  if (training.contains("max_grad_norm")) {
    recipe["optim"]["clip_norm"] = training["max_grad_norm"];
  }
  if (training.contains("warmup_steps")) {
    recipe["schedule"] = {{"warmup_steps", training["warmup_steps"]}};
  }
  if (training.contains("seed")) recipe["run"] = {{"seed", training["seed"]}};
  if (settings["mixed_precision"].get<bool>()) recipe["precision"] = {{"mode", "bf16"}};
  recipe["parallel"] = parallel_of(settings, spread);
  if (settings["backend"] != "auto") recipe["comm"]["backend"] = settings["backend"];
  const auto seconds =
      settings.value("timeout_seconds", settings.value("timeout_minutes", 0.0) * 60);
  if (seconds > 0) {
    recipe["comm"]["timeout"] = str(static_cast<std::int64_t>(seconds * 1000), "ms");
  }
  return recipe;
}

}  // namespace

Json gpu_settings(service::Service& service, const service::Identity& who) {
  auto settings = default_settings();
  const auto kept = Json::parse(service.store().settings(who.user), nullptr, false);
  if (kept.is_object()) settings.update(kept);
  return settings;
}

void keep_gpu_settings(service::Service& service, const Call& call) {
  auto settings = gpu_settings(service, call.who);
  const auto& known = properties_of("GpuSettings");
  for (const auto& [name, value] : call.body.items()) {
    if (!known.contains(name)) {
      std::vector<std::string> names;
      for (const auto& [key, unused] : known.items()) names.push_back(key);
      throw Refusal(Refused::invalid, "unknown setting '", name.substr(0, 60), "'",
                    text::did_you_mean(name, names));
    }
    settings[name] = value;
  }
  service::add_user(service.store(), call.who.user);
  service.store().set_settings(call.who.user, settings.dump());
}

Json ignored_keys(const Json& request) {
  Json ignored = Json::array();
  const auto look = [&](const Json& object, const Json& known,
                        const std::string& before) {
    for (const auto& [name, value] : object.items()) {
      constexpr std::size_t kMost = 60;
      if (known.contains(name) || ignored.size() >= kMost) continue;
      ignored.push_back(before + name.substr(0, kMost));
    }
  };
  const auto& known = properties_of("TrainingRequest");
  look(request, known, "");
  for (const auto* part : {"dataset_config", "training_config"}) {
    if (!request.contains(part)) continue;
    look(request[part], known.at(part).at("properties"), str(part, "."));
  }
  return ignored;
}

service::Submission training_of(service::Service& service, const Call& call,
                                std::string type) {
  const auto& body = call.body;
  if (type.empty()) type = body.value("training_type", "auto");
  if (type == "auto") type.clear();
  auto settings = gpu_settings(service, call.who);
  const auto training = body.value("training_config", Json::object());
  for (const auto& [name, value] : training.items()) {
    if (properties_of("GpuSettings").contains(name)) settings[name] = value;
  }
  const int world_size = body.value("world_size", 0);
  const auto& dataset = body.at("dataset_config");
  service::Submission wanted;
  wanted.name = body.at("model_name").get<std::string>();
  wanted.resources = devices_of(service.pool(), settings, world_size);
  const int devices = std::max(wanted.resources.gpus, wanted.resources.cores);
  if (type.empty() && devices > 1 && !settings["distributed_training"].get<bool>()) {
    type = "dataparallel";
  }
  wanted.recipe.text = recipe_of(body, settings, {type, world_size}).dump();
  wanted.recipe.inputs["model.weights"] = wanted.name;
  if (dataset.contains("texts")) {
    wanted.texts = dataset["texts"].get<std::vector<std::string>>();
    // A single one is what is trained on, and what the model is evaluated on.
    if (wanted.texts.size() == 1) wanted.texts.push_back(wanted.texts[0]);
  } else if (dataset.contains("file_id")) {
    wanted.recipe.inputs["data.dir"] = dataset["file_id"].get<std::string>();
  } else {
    throw Refusal(
        Refused::invalid,
        "dataset_config: give texts, or file_id of an upload (POST /v1/files)");
  }
  wanted.request = call.request.body;
  return wanted;
}

}  // namespace lockstep::server
