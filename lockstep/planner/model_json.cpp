#include <algorithm>
#include <cmath>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/planner/model.h"

namespace lockstep::planner {
namespace {

using Json = nlohmann::ordered_json;

// Large enough for any model, small enough that no sum of them overflows.
constexpr double kMost = 1e15;
constexpr int kMostUnits = 100'000;

// The only list of the fields.
template <typename Visitor>
void describe(Footprint& f, Visitor& v) {
  v.field("per_sample_bytes", f.per_sample_bytes);
  v.field("fixed_bytes", f.fixed_bytes);
}

template <typename Visitor>
void describe(Footprints& f, Visitor& v) {
  v.field("fp32", f.fp32);
  v.field("half", f.half);
}

template <typename Visitor>
void describe(Unit& u, Visitor& v) {
  v.field("name", u.name);
  v.field("count", u.count);
  v.field("num_parameters", u.num_parameters);
  v.field("buffer_bytes", u.buffer_bytes);
  v.field("forward_flops", u.forward_flops);
  v.field("quadratic_flops", u.quadratic_flops);
  v.field("operators", u.operators);
  v.field("kept", u.kept);
  v.field("num_inputs", u.num_inputs);
  v.field("num_outputs", u.num_outputs);
  v.field("recomputable", u.recomputable);
}

template <typename Visitor>
void describe(Model& m, Visitor& v) {
  v.field("name", m.name);
  v.field("source", m.source);
  v.field("sequence", m.sequence);
  v.field("sample_bytes", m.sample_bytes);
  v.field("train_samples", m.train_samples);
  v.field("backward", m.backward);
  v.field("forward", m.forward);
  v.field("units", m.units);
}

class Writer {
 public:
  template <typename T>
  void field(const char* name, T& value) {
    json_[name] = json_of(value);
  }
  Json take() { return std::move(json_); }

 private:
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

// Reads one object. `place` is where it stands: "x.json: units[1]".
class Reader {
 public:
  Reader(const Json& json, std::string place, bool is_top)
      : json_(json), place_(std::move(place)), is_top_(is_top) {
    if (!json.is_object()) wrong(place_, json, "an object");
  }

  template <typename T>
  void field(const char* name, T& value) {
    known_.emplace_back(name);
    if (const auto found = json_.find(name); found != json_.end()) {
      read(*found, inside(name), value);
    }
  }

  void refuse_others() const {
    for (const auto& [name, value] : json_.items()) {
      const bool known = std::find(known_.begin(), known_.end(), name) != known_.end();
      if (known || (is_top_ && name == "format")) continue;
      const auto hint = text::did_you_mean(name, known_);
      throw Error(Fault::config, inside(name), ": there is no such field",
                  hint.empty() ? "; docs/planner.md lists them" : hint);
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
  void read(const Json& json, const std::string& place, std::vector<T>& values) {
    if (!json.is_array()) wrong(place, json, "a list");
    if (json.size() > kMostUnits) {
      throw Error(Fault::config, place, ": ", json.size(), " parts are more than ",
                  kMostUnits);
    }
    for (std::size_t i = 0; i < json.size(); ++i) {
      read(json[i], str(place, "[", i, "]"), values.emplace_back());
    }
  }

  template <typename T>
  void read(const Json& json, const std::string& place, T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      if (!json.is_boolean()) wrong(place, json, "true or false");
      value = json.get<bool>();
    } else if constexpr (std::is_arithmetic_v<T>) {
      value = number<T>(json, place);
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
  static T number(const Json& json, const std::string& place) {
    if (!json.is_number()) wrong(place, json, "a number");
    const double value = json.get<double>();
    const bool whole = std::is_floating_point_v<T> || value == std::floor(value);
    const double most = std::is_same_v<T, int> ? kMostUnits : kMost;
    if (!whole || !(value >= 0) ||
        value > most * (std::is_same_v<T, double> ? 1e9 : 1)) {
      wrong(place, json, "a number that makes sense here");
    }
    return static_cast<T>(value);
  }

  const Json& json_;
  const std::string place_;
  const bool is_top_;
  std::vector<std::string> known_;
};

void check(const Json& json, const std::string& origin) {
  if (json.is_discarded()) {
    throw Error(Fault::config, origin,
                " is not JSON; `lockstep_worker --describe RECIPE` makes such a file");
  }
  if (!json.is_object()) return;  // the reader says so
  const auto found = json.find("format");
  if (found == json.end()) return;
  if (!found->is_number_integer() || found->get<std::int64_t>() > kModelFormat) {
    throw Error(Fault::config, origin, ": format ", found->dump(),
                " of a model is newer than ", kModelFormat,
                ", which this Lockstep reads; use a newer Lockstep");
  }
}

}  // namespace

std::string to_json(const Model& model) {
  auto copy = model;  // describe() serves readers, too, and so wants to write
  Writer writer;
  describe(copy, writer);
  auto json = Json::object();
  json["format"] = kModelFormat;
  json.update(writer.take());
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Model model_from_json(const std::string& text, const std::string& origin) {
  const auto json = Json::parse(text, nullptr, false);
  check(json, origin);
  Model model;
  Reader reader(json, origin, true);
  describe(model, reader);
  reader.refuse_others();
  if (model.units.empty()) {
    throw Error(Fault::config, origin, ": units: there is none, so there is no model");
  }
  if (const double total = static_cast<double>(model.num_parameters()); total > kMost) {
    throw Error(Fault::config, origin, ": units: ", total,
                " parameters together make no sense");
  }
  return model;
}

Model load_model(const std::filesystem::path& path) {
  constexpr std::int64_t kLimit = 64 << 20;
  return model_from_json(files::read(path, kLimit), path.string());
}

}  // namespace lockstep::planner
