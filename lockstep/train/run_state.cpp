#include "lockstep/train/run_state.h"

#include <cmath>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/json_problem.h"

namespace lockstep::train {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinities, which the best of nothing is.
Json written(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

template <typename T>
Json written(const T& value) {
  return value;
}

Json written(const std::optional<double>& value) {
  return value ? written(*value) : Json();
}

Json written(const std::map<std::string, double>& values) {
  Json all = Json::object();
  for (const auto& [name, value] : values) all[name] = written(value);
  return all;
}

template <typename T>
void read(const Json& json, T& value) {
  value = json.get<T>();
}

void read(const Json& json, double& value) {
  value = json.is_string() ? std::stod(json.get<std::string>()) : json.get<double>();
}

void read(const Json& json, std::optional<double>& value) {
  value.reset();
  if (!json.is_null()) read(json, value.emplace());
}

void read(const Json& json, std::map<std::string, double>& values) {
  for (const auto& [name, value] : json.items()) read(value, values[name]);
}

void read(const Json& json, std::map<std::string, std::int64_t>& counts) {
  for (const auto& [name, value] : json.items()) {
    if (value.get<std::int64_t>() < 0) {
      throw std::out_of_range(name + " was unused in fewer than 0");
    }
    counts[name] = value.get<std::int64_t>();
  }
}

// "early_stop.best" is `best` within `early_stop`.
std::pair<std::string, std::string> place_of(std::string_view path) {
  const auto dot = path.find('.');
  if (dot == std::string_view::npos) return {"", std::string(path)};
  return {std::string(path.substr(0, dot)), std::string(path.substr(dot + 1))};
}

struct StateWriter {
  template <typename T>
  void field(std::string_view path, const T& value, const StateField& = {}) {
    const auto [group, name] = place_of(path);
    (group.empty() ? json : json[group])[name] = written(value);
  }
  // Nearly every run uses all of its parameters.
  void field(std::string_view path, const std::map<std::string, std::int64_t>& counts,
             const StateField&) {
    if (!counts.empty()) json[std::string(path)] = counts;
  }

  Json json = Json::object();
};

struct StateReader {
  template <typename T>
  void field(std::string_view path, T& value, const StateField& known = {}) const {
    const auto [group, name] = place_of(path);
    const auto& in = group.empty() ? json : json.at(group);
    if (in.contains(name)) {
      read(in.at(name), value);
    } else if (!known.formerly.empty()) {
      read(in.at(std::string(known.formerly)), value);
    } else if (!known.may_be_missing) {
      read(in.at(name), value);  // says that it is not there
    }
  }

  const Json& json;
};

}  // namespace

std::string to_json(const RunState& state) {
  StateWriter writer;
  auto copy = state;
  describe(copy, writer);
  return writer.json.dump();
}

RunState run_state_from_json(std::string_view text, const std::string& place) {
  try {
    const auto json = Json::parse(text);
    RunState state;
    StateReader reader{json};
    describe(state, reader);
    return state;
  } catch (const std::exception& error) {
    throw Error(Fault::io, place,
                ": its state is not that of a training run: ", json_problem(error));
  }
}

}  // namespace lockstep::train
