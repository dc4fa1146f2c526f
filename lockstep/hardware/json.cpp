#include "lockstep/hardware/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/hardware/detail/describe_machine.h"

namespace lockstep::hardware {
namespace {

using Json = nlohmann::ordered_json;

class Writer {
 public:
  template <typename T>
  void field(const char* name, T& value) {
    json_[name] = json_of(value);
  }
  Json take() { return std::move(json_); }

 private:
  template <typename T>
  static Json json_of(std::optional<T>& value) {
    return value ? json_of(*value) : Json(nullptr);
  }
  template <typename T>
  static Json json_of(std::vector<T>& values) {
    auto list = Json::array();
    for (auto& value : values) list.push_back(json_of(value));
    return list;
  }
  template <typename T>
  static Json json_of(T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return value;
    } else {
      Writer inner;
      describe(value, inner);
      return inner.take();
    }
  }

  Json json_ = Json::object();
};

// Reads one object. `place` is where it stands: "node.json: gpus[1]".
class Reader {
 public:
  Reader(const Json& json, std::string place, bool is_top)
      : json_(json), place_(std::move(place)), is_top_(is_top) {
    if (!json.is_object()) wrong(place_, json, "an object");
  }

  template <typename T>
  void field(const char* name, T& value) {
    known_.emplace_back(name);
    const auto found = json_.find(name);
    if (found != json_.end() && !found->is_null()) read(*found, inside(name), value);
  }

  void refuse_others() const {
    for (const auto& [name, value] : json_.items()) {
      if (std::find(known_.begin(), known_.end(), name) != known_.end()) continue;
      if (is_top_ && name == "format") continue;
      const auto hint = text::did_you_mean(name, known_);
      throw Error(Fault::config, inside(name), ": there is no such field",
                  hint.empty() ? "; docs/hardware.md lists them" : hint);
    }
  }

 private:
  [[noreturn]] static void wrong(const std::string& place, const Json& json,
                                 std::string_view wanted) {
    auto text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    throw Error(Fault::config, place, ": ", text, " is not ", wanted);
  }

  std::string inside(const std::string& name) const {
    return str(place_, is_top_ ? ": " : ".", name);
  }

  template <typename T>
  void read(const Json& json, const std::string& place, std::optional<T>& value) {
    T inner{};
    read(json, place, inner);
    value = std::move(inner);
  }

  template <typename T>
  void read(const Json& json, const std::string& place, std::vector<T>& values) {
    if (!json.is_array()) wrong(place, json, "a list");
    for (std::size_t i = 0; i < json.size(); ++i) {
      read(json[i], str(place, "[", i, "]"), values.emplace_back());
    }
  }

  template <typename T>
  void read(const Json& json, const std::string& place, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) wrong(place, json, "true or false");
      value = json.get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      value = integer<T>(json, place);
    } else if constexpr (std::is_floating_point_v<T>) {
      if (!json.is_number()) wrong(place, json, "a number");
      value = json.get<T>();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) wrong(place, json, "text");
      value = json.get<std::string>();
    } else {
      Reader inner(json, place, false);
      describe(value, inner);
      inner.refuse_others();
    }
  }

  template <typename T>
  static T integer(const Json& json, const std::string& place) {
    if (json.is_string() && place.ends_with("_bytes")) {
      const auto bytes = units::parse_bytes(json.get<std::string>());
      if (!bytes) wrong(place, json, "a number of bytes (80GB, 24GiB)");
      return static_cast<T>(*bytes);
    }
    if (!json.is_number()) wrong(place, json, "a whole number");
    const double number = json.get<double>();
    // No count in here is negative, and none of them needs more bits than a double has.
    const bool fits = number >= 0 && number == std::floor(number) &&
                      number <= static_cast<double>(std::numeric_limits<T>::max());
    if (!fits) wrong(place, json, "a whole number that makes sense here");
    return json.get<T>();
  }

  const Json& json_;
  const std::string place_;
  const bool is_top_;
  std::vector<std::string> known_;
};

void check_format(const Json& json, const std::string& origin, const char* what) {
  const auto found = json.find("format");
  if (found == json.end()) return;
  if (!found->is_number_integer() || found->get<std::int64_t>() > kMachineFormat) {
    throw Error(Fault::config, origin, ": format ", found->dump(), " of ", what,
                " is newer than ", kMachineFormat,
                ", which this Lockstep reads; use a newer Lockstep");
  }
}

template <typename T>
std::string written(T copy) {  // describe() serves readers, too, and so wants to write
  Writer writer;
  describe(copy, writer);
  auto json = Json::object();
  json["format"] = kMachineFormat;
  json.update(writer.take());
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

template <typename T>
T read_from(const Json& json, const std::string& origin, const char* what) {
  if (json.is_discarded()) throw Error(Fault::config, origin, " is not JSON");
  T value;
  Reader reader(json, origin, true);
  check_format(json, origin, what);
  describe(value, reader);
  reader.refuse_others();
  return value;
}

}  // namespace

std::string to_json(const Machine& machine) {
  return written(machine);
}

std::string to_json(const Measured& measured) {
  return written(measured);
}

std::string to_json(const GpuCheck& check) {
  return written(check);
}

Measured measured_from_json(const std::string& text, const std::string& origin) {
  return read_from<Measured>(Json::parse(text, nullptr, false), origin,
                             "what was measured");
}

GpuCheck gpu_check_from_json(const std::string& text, const std::string& origin) {
  return read_from<GpuCheck>(Json::parse(text, nullptr, false), origin,
                             "a test of a GPU");
}

Machine from_json(const std::string& text, const std::string& origin) {
  const auto json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    throw Error(Fault::config, origin,
                " is not JSON; `lockstep hardware --json` makes such a file");
  }
  auto machine = read_from<Machine>(json, origin, "a machine");
  const auto given = json.find("gpus");
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    if (!(*given)[i].contains("index")) machine.gpus[i].index = static_cast<int>(i);
    if (!(*given)[i].contains("nvml_index")) {
      machine.gpus[i].nvml_index = machine.gpus[i].index;
    }
  }
  return machine;
}

Machine load(const Path& path) {
  constexpr std::int64_t kLimit = 16 << 20;
  return from_json(files::read(path, kLimit), path.string());
}

}  // namespace lockstep::hardware
