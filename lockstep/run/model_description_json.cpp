#include <cmath>
#include <type_traits>

#include "lockstep/base/described_json.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/run/model_description.h"

namespace lockstep::run {
// The only lists of the fields. They are found by their arguments, so not in a
// namespace without a name.
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
void describe(ModelUnit& u, Visitor& v) {
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
void describe(ModelTrial& t, Visitor& v) {
  v.field("threads", t.threads);
  v.field("samples", t.samples);
  v.field("seconds", t.seconds);
}

template <typename Visitor>
void describe(OwnPasses& p, Visitor& v) {
  v.field("exist", p.exist);
  v.field("obstacle", p.obstacle);
  v.field("kept", p.kept);
}

template <typename Visitor>
void describe(ModelDescription& m, Visitor& v) {
  v.field("name", m.name);
  v.field("source", m.source);
  v.field("sequence", m.sequence);
  v.field("sample_bytes", m.sample_bytes);
  v.field("load_seconds", m.load_seconds);
  v.field("train_samples", m.train_samples);
  v.field("frozen_parameters", m.frozen_parameters);
  v.field("backward", m.backward);
  v.field("forward", m.forward);
  v.field("units", m.units);
  v.field("assumed_data", m.assumed_data);
  v.field("cpu_model", m.cpu_model);
  v.field("trials", m.trials);
  v.field("process_bytes", m.process_bytes);
  v.field("own_passes", m.own_passes);
}

namespace {

using described::Json;

// Large enough for any model, and for the sum over its units: check_totals().
constexpr double kMost = 1e15;
constexpr int kMostUnits = 100'000;

struct ModelRules {
  static constexpr std::string_view kPage = "docs/planner.md";
  static constexpr bool kNullIsNothing = false;

  static void check_list(const Json& json, const std::string& place) {
    if (json.size() <= kMostUnits) return;
    throw Error(Fault::config, place, ": ", json.size(), " parts are more than ",
                kMostUnits);
  }

  template <typename T>
  static T number(const Json& json, const std::string& place) {
    if (!json.is_number()) described::refuse(place, json, "a number");
    const double value = json.get<double>();
    const bool whole = std::is_floating_point_v<T> || value == std::floor(value);
    const double most = std::is_same_v<T, int> ? kMostUnits : kMost;
    if (!whole || !(value >= 0) ||
        value > most * (std::is_same_v<T, double> ? 1e9 : 1)) {
      described::refuse(place, json, "a number that makes sense here");
    }
    return static_cast<T>(value);
  }
};

// Sums of integers may not wrap: those of a description are added up as doubles first.
void check_totals(const ModelDescription& model, const std::string& origin) {
  const auto check = [&](const char* what, auto&& value_of) {
    double total = 0;
    for (const auto& unit : model.units) {
      total += static_cast<double>(unit.count) * static_cast<double>(value_of(unit));
    }
    if (total <= kMost) return;
    throw Error(Fault::config, origin, ": units: ", total, " ", what,
                " together make no sense");
  };
  check("parameters", [](const ModelUnit& unit) { return unit.num_parameters; });
  check("bytes of buffers", [](const ModelUnit& unit) { return unit.buffer_bytes; });
  check("operators", [](const ModelUnit& unit) { return unit.operators; });
  if (model.frozen_parameters <= model.num_parameters()) return;
  throw Error(Fault::config, origin, ": frozen_parameters: ", model.frozen_parameters,
              " are more than the model has, ", model.num_parameters());
}

}  // namespace

std::string to_json(const ModelDescription& model) {
  return described::written(model, kModelFormat);
}

ModelDescription model_from_json(const std::string& text, const std::string& origin) {
  const auto json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    throw Error(Fault::config, origin,
                " is not JSON; `lockstep_worker --describe RECIPE` makes such a file");
  }
  described::check_format(json, origin, {.newest = kModelFormat, .what = "a model"});
  ModelDescription model;
  described::DescribedReader<ModelRules> reader(json, origin, true);
  describe(model, reader);
  reader.refuse_others();
  if (model.units.empty()) {
    throw Error(Fault::config, origin, ": units: there is none, so there is no model");
  }
  check_totals(model, origin);
  return model;
}

ModelDescription load_model(const std::filesystem::path& path) {
  constexpr std::int64_t kLimit = 64 << 20;
  return model_from_json(files::read(path, kLimit), path.string());
}

}  // namespace lockstep::run
