#include "lockstep/hardware/json.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "lockstep/base/described_json.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/units.h"
#include "lockstep/hardware/detail/describe_machine.h"

namespace lockstep::hardware {
namespace {

using described::Json;

struct MachineRules {
  static constexpr std::string_view kPage = "docs/hardware.md";
  static constexpr bool kNullIsNothing = true;

  static void check_list(const Json&, const std::string&) {}

  template <typename T>
  static T number(const Json& json, const std::string& place) {
    if constexpr (std::is_integral_v<T>) {
      return integer<T>(json, place);
    } else {
      if (!json.is_number()) described::refuse(place, json, "a number");
      return json.get<T>();
    }
  }

 private:
  template <typename T>
  static T integer(const Json& json, const std::string& place) {
    if (json.is_string() && place.ends_with("_bytes")) {
      const auto bytes = units::parse_bytes(json.get<std::string>());
      if (!bytes) described::refuse(place, json, "a number of bytes (80GB, 24GiB)");
      return static_cast<T>(*bytes);
    }
    if (!json.is_number()) described::refuse(place, json, "a whole number");
    const double number = json.get<double>();
    // No count in here is negative, and none of them needs more bits than a double has.
    const bool fits = number >= 0 && number == std::floor(number) &&
                      number <= static_cast<double>(std::numeric_limits<T>::max());
    if (!fits) described::refuse(place, json, "a whole number that makes sense here");
    return json.get<T>();
  }
};

template <typename T>
T read_from(const Json& json, const std::string& origin, const char* what) {
  if (json.is_discarded()) throw Error(Fault::config, origin, " is not JSON");
  T value;
  described::DescribedReader<MachineRules> reader(json, origin, true);
  described::check_format(json, origin, {.newest = kMachineFormat, .what = what});
  describe(value, reader);
  reader.refuse_others();
  return value;
}

// A machine has cores or GPUs: an empty object is none, and so are most mistakes.
void complete_cores(const Json& json, const std::string& origin, Machine& machine) {
  const bool physical = json.contains("physical_cores");
  const bool logical = json.contains("logical_cores");
  if (!physical && !logical && machine.gpus.empty()) {
    throw Error(
        Fault::config, origin,
        ": neither physical_cores nor gpus, so this does not describe a machine; "
        "`lockstep hardware --json` makes such a file (docs/hardware.md)");
  }
  if (!logical) machine.logical_cores = machine.physical_cores;
  if (!physical) machine.physical_cores = machine.logical_cores;
}

}  // namespace

std::string to_json(const Machine& machine) {
  return described::written(machine, kMachineFormat);
}

std::string to_json(const Measured& measured) {
  return described::written(measured, kMachineFormat);
}

std::string to_json(const GpuCheck& check) {
  return described::written(check, kMachineFormat);
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
  complete_cores(json, origin, machine);
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
