#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"

// Structs as JSON objects, from one list of their fields: a function beside the struct,
// template <typename Visitor> void describe(T& t, Visitor& v), that calls
// v.field("name", t.name) for each. Only for sources: it brings the JSON library along.
namespace lockstep::described {

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

// Writes "format" first. Takes a copy: describe() serves readers, too, and so wants to
// write.
template <typename T>
std::string written(T copy, int format) {
  Writer writer;
  describe(copy, writer);
  auto json = Json::object();
  json["format"] = format;
  json.update(writer.take());
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Throws "x.json: gpus[1]: 3 is not a list".
[[noreturn]] inline void refuse(const std::string& place, const Json& json,
                                std::string_view wanted) {
  auto text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  throw Error(Fault::config, place, ": ", text, " is not ", wanted);
}

struct FormatVersion {
  int newest;             // that this program reads
  std::string_view what;  // "a machine"
};

// Refuses the file of a newer program.
inline void check_format(const Json& json, const std::string& origin,
                         const FormatVersion& format) {
  if (!json.is_object()) return;  // the reader says so
  const auto found = json.find("format");
  if (found == json.end()) return;
  if (found->is_number_integer() && found->get<std::int64_t>() <= format.newest) return;
  throw Error(Fault::config, origin, ": format ", found->dump(), " of ", format.what,
              " is newer than ", format.newest,
              ", which this Lockstep reads; use a newer Lockstep");
}

// Reads one object. `place` is where it stands: "node.json: gpus[1]". Rules have kPage
// (that lists the fields), kNullIsNothing (as if left out), number<T>() and
// check_list().
template <typename Rules>
class DescribedReader {
 public:
  DescribedReader(const Json& json, std::string place, bool is_top)
      : json_(json), place_(std::move(place)), is_top_(is_top) {
    if (!json.is_object()) refuse(place_, json, "an object");
  }

  template <typename T>
  void field(const char* name, T& value) {
    known_.emplace_back(name);
    const auto found = json_.find(name);
    if (found == json_.end() || (Rules::kNullIsNothing && found->is_null())) return;
    read(*found, inside(name), value);
  }

  void refuse_others() const {
    for (const auto& [name, value] : json_.items()) {
      const bool known = std::find(known_.begin(), known_.end(), name) != known_.end();
      if (known || (is_top_ && name == "format")) continue;
      const auto hint = text::did_you_mean(name, known_);
      throw Error(Fault::config, inside(name), ": there is no such field",
                  hint.empty() ? str("; ", Rules::kPage, " lists them") : hint);
    }
  }

 private:
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
    if (!json.is_array()) refuse(place, json, "a list");
    Rules::check_list(json, place);
    for (std::size_t i = 0; i < json.size(); ++i) {
      read(json[i], str(place, "[", i, "]"), values.emplace_back());
    }
  }

  template <typename T>
  void read(const Json& json, const std::string& place, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) refuse(place, json, "true or false");
      value = json.get<bool>();
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = Rules::template number<T>(json, place);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!json.is_string()) refuse(place, json, "text");
      value = json.get<std::string>();
    } else {
      DescribedReader inner(json, place, false);
      describe(value, inner);
      inner.refuse_others();
    }
  }

  const Json& json_;
  const std::string place_;
  const bool is_top_;
  std::vector<std::string> known_;
};

}  // namespace lockstep::described
