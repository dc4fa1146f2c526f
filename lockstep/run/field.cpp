#include "lockstep/run/field.h"

#include <cmath>
#include <limits>

#include <nlohmann/json.hpp>

namespace lockstep::run {
namespace {

using Json = nlohmann::ordered_json;

struct ToJson {
  Json operator()(double value) const {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return value;
  }
  template <typename T>
  Json operator()(const T& value) const {
    return value;
  }
};

NamedValue field_of(const std::string& name, const Json& value) {
  if (value.is_boolean()) return {name, value.get<bool>()};
  if (value.is_string()) return {name, value.get<std::string>()};
  // An unsigned number beyond int64 still has a double.
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() ||
       value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max());
  if (fits) return {name, value.get<std::int64_t>()};
  if (value.is_number()) return {name, value.get<double>()};
  return {name, value.dump()};
}

}  // namespace

std::string to_json_line(std::span<const NamedValue> fields) {
  auto object = Json::object();
  for (const auto& field : fields)
    object[field.name] = std::visit(ToJson{}, field.value);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<std::vector<NamedValue>> parse_json_line(std::string_view line) {
  const auto object = Json::parse(line, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  std::vector<NamedValue> fields;
  for (const auto& [name, value] : object.items())
    fields.push_back(field_of(name, value));
  return fields;
}

std::optional<double> number_of(const NamedValue& field) {
  if (const auto* integer = std::get_if<std::int64_t>(&field.value)) {
    return static_cast<double>(*integer);
  }
  if (const auto* real = std::get_if<double>(&field.value)) return *real;
  const auto* word = std::get_if<std::string>(&field.value);
  if (word == nullptr) return std::nullopt;
  if (*word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (*word == "Infinity") return std::numeric_limits<double>::infinity();
  if (*word == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

}  // namespace lockstep::run
