#include "lockstep/train/standing.h"

#include <cmath>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json_problem.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinities, which the best of nothing is.
Json numbers(const std::map<std::string, double>& values) {
  Json all = Json::object();
  for (const auto& [name, value] : values) {
    if (std::isfinite(value)) {
      all[name] = value;
    } else {
      all[name] = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
  }
  return all;
}

double number(const Json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

std::map<std::string, double> numbers_of(const Json& json) {
  std::map<std::string, double> values;
  for (const auto& [name, value] : json.items()) values[name] = number(value);
  return values;
}

std::map<std::string, std::int64_t> unused_steps_of(const Json& json) {
  std::map<std::string, std::int64_t> steps;
  for (const auto& [name, count] : json.items()) {
    steps[name] = count.get<std::int64_t>();
    if (steps[name] < 0) throw std::out_of_range(name + " was unused in fewer than 0");
  }
  return steps;
}

}  // namespace

std::string to_json(const Standing& standing) {
  Json json{
      {"steps", standing.steps},
      {"samples", standing.samples},
      {"position",
       {{"epoch", standing.position.epoch}, {"consumed", standing.position.consumed}}},
      {"epoch", standing.epoch},
      {"train_seconds", standing.train_seconds},
      {"skipped", standing.skipped},
      {"skipped_in_a_row", standing.skipped_in_a_row},
      {"evaluated_at", standing.evaluated_at},
      {"best_primary",
       standing.best_primary ? numbers({{"v", *standing.best_primary}})["v"] : Json()},
      {"early_stop",
       {{"best", standing.best ? numbers({{"v", *standing.best}})["v"] : Json()},
        {"waited", standing.waited},
        {"divergence", numbers(standing.divergence)},
        {"ended", standing.ended_early},
        {"knobs", standing.early_stop}}},
      {"last_step", standing.last_step},
      {"loss_scale", numbers(standing.scaler)},
      {"schedule", numbers(standing.schedule)},
      {"micro_batch", standing.micro_batch},
      {"recompute_every", standing.recompute_every},
      {"order", standing.order}};
  if (!standing.unused_steps.empty()) json["unused_steps"] = standing.unused_steps;
  return json.dump();
}

Standing standing_from_json(std::string_view text, const std::string& place) {
  try {
    const auto json = Json::parse(text);
    Standing standing{.steps = json.at("steps"),
                      .samples = json.at("samples"),
                      .position = {json.at("position").at("epoch"),
                                   json.at("position").at("consumed")},
                      .epoch = json.at("epoch"),
                      .train_seconds = json.at("train_seconds"),
                      .skipped = json.at("skipped"),
                      .skipped_in_a_row = json.at("skipped_in_a_row"),
                      .evaluated_at = json.at("evaluated_at"),
                      .waited = json.at("early_stop").at("waited"),
                      .scaler = numbers_of(json.at("loss_scale")),
                      .schedule = numbers_of(json.at("schedule")),
                      .micro_batch = json.at("micro_batch"),
                      .recompute_every = json.at("recompute_every"),
                      .order = json.at("order").get<std::vector<std::string>>()};
    const auto& best = json.at("early_stop").at("best");
    if (!best.is_null()) standing.best = number(best);
    // Checkpoints of an earlier version have none.
    if (const auto found = json.at("early_stop").find("divergence");
        found != json.at("early_stop").end()) {
      standing.divergence = numbers_of(*found);
    }
    // Checkpoints of versions that trained classifiers only have the accuracy.
    const auto primary = json.contains("best_primary") ? json.at("best_primary")
                                                       : json.at("best_accuracy");
    if (!primary.is_null()) standing.best_primary = number(primary);
    standing.last_step = json.value("last_step", std::int64_t{0});
    standing.ended_early = json.at("early_stop").value("ended", "");
    standing.early_stop = json.at("early_stop").value("knobs", "");
    if (const auto found = json.find("unused_steps"); found != json.end()) {
      standing.unused_steps = unused_steps_of(*found);
    }
    return standing;
  } catch (const std::exception& error) {
    throw Error(Fault::io, place,
                ": its state is not that of a training run: ", json_problem(error));
  }
}

}  // namespace lockstep::train
