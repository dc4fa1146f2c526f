#include "lockstep/server/detail/schema.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"

namespace lockstep::server {
namespace {

using Json = nlohmann::ordered_json;

class SchemaCheck {
 public:
  explicit SchemaCheck(const Json& components) : components_(components) {}

  std::string problem(const Json& value, const Json& schema, const std::string& place) {
    if (schema.is_boolean() || schema.empty()) return "";
    if (schema.contains("$ref")) {
      const auto name = schema["$ref"].get<std::string>();
      return problem(value, components_.at(name.substr(name.rfind('/') + 1)), place);
    }
    if (schema.contains("type") && !fits_any(value, schema["type"])) {
      return str(place, ": is ", value.type_name(), "; ", schema["type"].dump(),
                 " is expected");
    }
    if (schema.contains("x-checked-by-loading")) {
      const bool is_empty = value.empty() || value == "";
      return is_empty ? str(place, ": is empty") : "";
    }
    if (schema.contains("enum")) {
      const auto& choices = schema["enum"];
      if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
        return str(place, ": is not one of ", choices.dump());
      }
    }
    if (value.is_object()) return object_problem(value, schema, place);
    if (value.is_array()) return array_problem(value, schema, place);
    if (value.is_string()) return text_problem(value, schema, place);
    if (value.is_number()) return number_problem(value, schema, place);
    return "";
  }

 private:
  static bool fits(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "number") return value.is_number();
    if (type != "integer" || !value.is_number()) return false;
    // 3.0 is one by JSON Schema; what no integer of ours can hold is not.
    constexpr double kMost = 9e15;
    return value.is_number_integer() ||
           (std::floor(value.get<double>()) == value.get<double>() &&
            std::abs(value.get<double>()) < kMost);
  }

  static bool fits_any(const Json& value, const Json& types) {
    if (types.is_string()) return fits(value, types.get<std::string>());
    return std::any_of(types.begin(), types.end(), [&](const Json& type) {
      return fits(value, type.get<std::string>());
    });
  }

  std::string object_problem(const Json& value, const Json& schema,
                             const std::string& place) {
    const auto properties = schema.value("properties", Json::object());
    for (const auto& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) {
        return str(place, ": '", name.get<std::string>(), "' is missing");
      }
    }
    const Json others = schema.value("additionalProperties", Json(true));
    for (const auto& [name, item] : value.items()) {
      const auto below = place == "body" ? name : str(place, ".", name);
      if (properties.contains(name)) {
        const auto found = problem(item, properties[name], below);
        if (!found.empty()) return found;
      } else if (others.is_boolean() && !others.get<bool>()) {
        std::vector<std::string> known;
        for (const auto& [key, unused] : properties.items()) known.push_back(key);
        return str(place, ": unknown key '", name.substr(0, 60), "'",
                   text::did_you_mean(name, known));
      } else if (others.is_object()) {
        const auto found = problem(item, others, below);
        if (!found.empty()) return found;
      }
    }
    return "";
  }

  std::string array_problem(const Json& value, const Json& schema,
                            const std::string& place) {
    if (value.size() < schema.value("minItems", std::size_t{0}) ||
        value.size() > schema.value("maxItems", value.size())) {
      return str(place, ": has ", value.size(), " items");
    }
    if (!schema.contains("items")) return "";
    for (std::size_t i = 0; i < value.size(); ++i) {
      const auto found = problem(value[i], schema["items"], str(place, "[", i, "]"));
      if (!found.empty()) return found;
    }
    return "";
  }

  static std::string text_problem(const Json& value, const Json& schema,
                                  const std::string& place) {
    const auto& text = value.get_ref<const std::string&>();
    // Code points, as JSON Schema counts.
    const auto length =
        static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
          return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
        }));
    if (length < schema.value("minLength", std::size_t{0}) ||
        length > schema.value("maxLength", length)) {
      return str(place, ": has ", length, " characters");
    }
    return "";
  }

  static std::string number_problem(const Json& value, const Json& schema,
                                    const std::string& place) {
    const auto number = value.get<double>();
    if (schema.contains("minimum") && number < schema["minimum"].get<double>()) {
      return str(place, ": is below ", schema["minimum"].dump());
    }
    if (schema.contains("maximum") && number > schema["maximum"].get<double>()) {
      return str(place, ": is above ", schema["maximum"].dump());
    }
    return "";
  }

  const Json& components_;
};

}  // namespace

std::string schema_problem(const Json& value, const Json& schema,
                           const Json& components) {
  return SchemaCheck(components).problem(value, schema, "body");
}

}  // namespace lockstep::server
