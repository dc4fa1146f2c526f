#include "lockstep/monitor/error_file.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/text.h"

namespace lockstep::monitor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kLimitBytes = 1 << 20;

// torchrun shows "Type: text"; ours is the fault.
std::string type_prefix(Fault fault) {
  return str("lockstep.Fault.", name_of(fault), ": ");
}

Fault fault_named(std::string_view name) {
  for (const auto fault : {Fault::config, Fault::hardware, Fault::io, Fault::comm}) {
    if (name_of(fault) == name) return fault;
  }
  return Fault::internal;
}

}  // namespace

void write_error(const files::Path& path, const RankError& error, const Clock& clock) {
  const double now = unix_seconds(clock.wall());
  const auto seconds = static_cast<std::int64_t>(now);
  Json json;
  json["message"]["message"] = type_prefix(error.fault) + error.message;
  json["message"]["extraInfo"]["py_callstack"] = "";
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
    error.fault = fault_named(json.at("fault").get<std::string>());
    error.message = json.at("message").at("message").get<std::string>();
    const auto prefix = type_prefix(error.fault);
    if (text::starts_with(error.message, prefix)) error.message.erase(0, prefix.size());
    error.rank = json.value("rank", 0);
    error.time = json.value("time", 0.0);
    return error;
  } catch (const std::exception&) {
    return std::nullopt;  // missing or damaged: the caller has the exit status, too
  }
}

}  // namespace lockstep::monitor
