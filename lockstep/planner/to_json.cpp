#include <nlohmann/json.hpp>

#include "lockstep/planner/plan.h"

namespace lockstep::planner {

std::string to_json(const Plan& plan) {
  using Json = nlohmann::ordered_json;
  Json choices = Json::array();
  for (const auto& [key, value, because] : plan.choices) {
    choices.push_back({{"key", key}, {"value", value}, {"because", because}});
  }
  const Json document = {{"version", 1}, {"choices", choices}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::planner
