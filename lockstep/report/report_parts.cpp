#include "lockstep/report/detail/report_parts.h"

#include <map>
#include <optional>
#include <string>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/units.h"
#include "lockstep/hardware/json.h"
#include "lockstep/run/events.h"

namespace lockstep::report::detail {
namespace {

using Json = nlohmann::ordered_json;

std::optional<hardware::Machine> machine_of(const run::RunDirectory& run) {
  try {
    return hardware::load(run.machine());
  } catch (const Error&) {
    return std::nullopt;  // a run of an earlier version, or of other hands
  }
}

std::string gpu_words(const hardware::Gpu& gpu) {
  return fmt::format("{}, {}, compute {}.{}", gpu.name,
                     units::format_bytes(gpu.memory_total_bytes), gpu.compute_major,
                     gpu.compute_minor);
}

std::optional<double> number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

// Returns the quantity in a form for users.
std::string shown(const std::optional<double>& value, bool is_time) {
  if (!value) return "-";
  return is_time ? fmt::format("{:.3g} ms", 1e3 * *value)
                 : units::format_bytes(static_cast<std::int64_t>(*value));
}

std::vector<std::string> prediction_row(const Json& pair, const std::string& name,
                                        bool is_time) {
  const auto predicted = number_at(pair, "predicted");
  const auto measured = number_at(pair, "measured");
  const auto low = number_at(pair, "low");
  const auto high = number_at(pair, "high");
  const auto error =
      predicted && measured && *predicted > 0 && *measured > 0
          ? fmt::format("{:+.0f} %", 100 * run::prediction_error(*predicted, *measured))
          : "-";
  const auto range =
      low && high ? fmt::format("{} to {}", shown(low, is_time), shown(high, is_time))
                  : "-";
  return {name, shown(predicted, is_time), range, shown(measured, is_time), error};
}

Json record_of(const run::RunDirectory& run) {
  try {
    return Json::parse(files::read(run.record_file(), 16 << 20), nullptr, false);
  } catch (const Error&) {
    return Json();
  }
}

}  // namespace

Rows machine_rows(const run::RunDirectory& run) {
  const auto machine = machine_of(run);
  if (!machine) return {};
  Rows rows{
      {"machine", fmt::format("{}, {}, Linux {}", machine->hostname, machine->os,
                              machine->kernel)},
      {"CPU", fmt::format("{}, {} usable cores ({} threads), {} socket{}",
                          machine->cpu_model.empty() ? "unknown" : machine->cpu_model,
                          machine->physical_cores, machine->logical_cores,
                          machine->sockets, machine->sockets == 1 ? "" : "s")},
      {"memory", fmt::format("{}, {} available at the start",
                             units::format_bytes(machine->memory_total_bytes),
                             units::format_bytes(machine->memory_available_bytes))}};
  if (machine->gpus.empty()) rows.push_back({"GPU", "none: " + machine->gpu_note});
  for (const auto& gpu : machine->gpus) {
    rows.push_back({fmt::format("GPU {}", gpu.index), gpu_words(gpu)});
  }
  if (!machine->driver_version.empty()) {
    rows.push_back({"driver", fmt::format("{}, CUDA up to {}", machine->driver_version,
                                          machine->cuda_driver_version)});
  }
  return rows;
}

Rows prediction_rows(const run::RunDirectory& run) {
  const auto record = record_of(run);
  if (!record.is_object() || !record.value("prediction", Json()).is_object()) return {};
  Rows rows{{"", "predicted", "range", "measured", "error"}};
  const auto& prediction = record["prediction"];
  for (const auto& [key, name, is_time] :
       {std::tuple("memory_bytes", "memory of a rank", false),
        std::tuple("step_seconds", "time of a step", true)}) {
    const auto pair = prediction.value(key, Json());
    if (pair.is_object()) rows.push_back(prediction_row(pair, name, is_time));
    // Steps beside other processes do not say how right a prediction was.
    const bool is_busy =
        number_at(prediction, "others_share").value_or(0) > run::kBusyShare;
    if (pair.is_object() && is_time && is_busy) rows.back().back() = "(busy)";
  }
  return rows.size() == 1 ? Rows() : rows;
}

Rows text_rows(const run::RunDirectory& run) {
  const auto text_at = [](const run::Event& event, std::string_view name) {
    for (const auto& field : event.fields) {
      if (field.name != name) continue;
      if (const auto* text = std::get_if<std::string>(&field.value)) return *text;
      if (const auto* number = std::get_if<std::int64_t>(&field.value)) {
        return std::to_string(*number);
      }
    }
    return std::string();
  };
  // A long run has many events, but the first texts are what the last are compared
  // with.
  constexpr std::size_t kAll = 1'000'000;
  std::map<std::string, Rows> by_prompt;
  for (const auto& event : run::last_events(run.events(), kAll)) {
    if (event.kind != "sample") continue;
    const auto prompt = text_at(event, "prompt");
    by_prompt[prompt].push_back(
        {prompt, text_at(event, "step"), text_at(event, "text")});
  }
  if (by_prompt.empty()) return {};
  Rows rows{{"prompt", "step", "continued by the model"}};
  for (const auto& [prompt, texts] : by_prompt) {
    rows.insert(rows.end(), texts.begin(), texts.end());
  }
  return rows;
}

}  // namespace lockstep::report::detail
