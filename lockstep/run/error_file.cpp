#include "lockstep/run/error_file.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"

namespace lockstep::run {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLimitBytes = 1 << 20;

// torchrun shows "Type: text"; ours is the fault.
std::string type_prefix(Fault fault) {
  return str("lockstep.Fault.", name_of(fault), ": ");
}

Fault fault_named(std::string_view name) {
  for (const auto fault :
       {Fault::config, Fault::hardware, Fault::io, Fault::comm, Fault::diverged}) {
    if (name_of(fault) == name) return fault;
  }
  return Fault::internal;
}

// Torch writes whole seconds, as text or as a number.
double seconds_of(const Json& object, const char* name) {
  if (!object.is_object() || !object.contains(name)) return 0;
  const auto& value = object.at(name);
  if (value.is_number()) return value.get<double>();
  return value.is_string() ? text::to_double(value.get<std::string>()).value_or(0) : 0;
}

// The field "message" is a text with the time beside it, or an object that holds both.
void read_message(const Json& json, RankError& error) {
  const auto& message = json.at("message");
  if (message.is_string()) {
    error.message = message.get<std::string>();
    error.time = seconds_of(json, "timestamp");
    return;
  }
  error.message = message.at("message").get<std::string>();
  if (message.contains("extraInfo")) {
    error.time = seconds_of(message.at("extraInfo"), "timestamp");
  }
}

}  // namespace

void write_error(const files::Path& path, const RankError& error, const Clock& clock) {
  const double now = unix_seconds(clock.wall());
  const auto seconds = static_cast<std::int64_t>(now);
  Json json;
  json["message"]["message"] = type_prefix(error.fault) + error.message;
  // There is no "py_callstack": torchrun would show it instead of the message.
  json["message"]["extraInfo"]["timestamp"] = str(seconds);
  json["fault"] = name_of(error.fault);
  json["rank"] = error.rank;
  json["time"] = now;
  const auto text = json.dump(2, ' ', false, Json::error_handler_t::replace);
  files::write_atomically(path, text + "\n");
}

std::optional<RankError> read_error(const files::Path& path) {
  try {
    const auto json = Json::parse(files::read(path, kLimitBytes));
    RankError error;
    error.fault = fault_named(json.value("fault", ""));
    read_message(json, error);
    const auto prefix = type_prefix(error.fault);
    if (text::starts_with(error.message, prefix)) error.message.erase(0, prefix.size());
    error.rank = json.value("rank", 0);
    error.time = json.value("time", error.time);
    return error;
  } catch (const std::exception&) {
    return std::nullopt;  // missing or damaged: the caller has the exit status, too
  }
}

}  // namespace lockstep::run
