// Reads and writes run.json, and tells whether the process it names still lives.
#include "lockstep/run/detail/run_record.h"

#include <array>
#include <cerrno>

#include <nlohmann/json.hpp>
#include <signal.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/json_problem.h"
#include "lockstep/base/text.h"

namespace lockstep::run {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<RunStatus, std::string_view>, 6> kStates = {{
    {RunStatus::planned, "planned"},
    {RunStatus::running, "running"},
    {RunStatus::stopping, "stopping"},
    {RunStatus::done, "done"},
    {RunStatus::failed, "failed"},
    {RunStatus::stopped, "stopped"},
}};

std::string this_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// Returns the 22nd word of /proc/<pid>/stat; 0 if it can not be read. The second word
// is the program's name in parentheses and may hold spaces.
std::int64_t start_of_process(int pid) {
  try {
    const auto stat = files::read(str("/proc/", pid, "/stat"), 1 << 16);
    const auto rest = stat.substr(stat.rfind(')') + 2);
    const auto words = text::split(rest, ' ');
    constexpr std::size_t kStartTime = 22 - 3;
    return words.size() > kStartTime ? text::to_integer(words[kStartTime]).value_or(0)
                                     : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

Json json_of(const Comparison& c) {
  const auto with_error = [](double predicted, double measured) {
    Json pair = {{"predicted", predicted}, {"measured", measured}};
    if (predicted > 0 && measured > 0) {
      pair["error"] = prediction_error(predicted, measured);
    }
    return pair;
  };
  auto step = with_error(c.step_predicted_seconds, c.step_measured_seconds);
  if (c.is_busy()) step.erase("error");
  // A spread is a ratio: as many times less as more, and never less than nothing.
  if (c.step_predicted_seconds * c.step_spread > 0) {
    step["low"] = c.step_predicted_seconds / (1 + c.step_spread);
    step["high"] = c.step_predicted_seconds * (1 + c.step_spread);
  }
  return {
      {"memory_bytes", with_error(c.memory_predicted_bytes, c.memory_measured_bytes)},
      {"step_seconds", step},
      {"others_share", c.others_share}};
}

// Returns 0 for a number that is not there.
double number_in(const Json& json, const char* group, const char* name) {
  const auto found = json.find(group);
  if (found == json.end() || !found->is_object()) return 0;
  const auto number = found->find(name);
  return number == found->end() || !number->is_number() ? 0 : number->get<double>();
}

std::optional<Comparison> comparison_in(const Json& json) {
  const auto found = json.find("prediction");
  if (found == json.end() || !found->is_object()) return std::nullopt;
  Comparison c{.memory_predicted_bytes = number_in(*found, "memory_bytes", "predicted"),
               .memory_measured_bytes = number_in(*found, "memory_bytes", "measured"),
               .step_predicted_seconds = number_in(*found, "step_seconds", "predicted"),
               .step_measured_seconds = number_in(*found, "step_seconds", "measured")};
  const double high = number_in(*found, "step_seconds", "high");
  if (high > 0 && c.step_predicted_seconds > 0) {
    c.step_spread = high / c.step_predicted_seconds - 1;
  }
  const auto others = found->find("others_share");
  if (others != found->end() && others->is_number()) {
    c.others_share = others->get<double>();
  }
  return c;
}

RunStatus state_in(const Json& json) {
  const auto name = json.at("state").get<std::string>();
  if (const auto state = run_status_of(name)) return *state;
  throw Error(Fault::io, "unknown state '", name, "'");
}

}  // namespace

std::string_view name_of(RunStatus state) noexcept {
  for (const auto& [value, name] : kStates) {
    if (value == state) return name;
  }
  return "unknown";
}

std::optional<RunStatus> run_status_of(std::string_view name) noexcept {
  for (const auto& [value, known] : kStates) {
    if (known == name) return value;
  }
  return std::nullopt;
}

bool is_final(RunStatus state) noexcept {
  return state == RunStatus::done || state == RunStatus::failed ||
         state == RunStatus::stopped;
}

RunRecord record_of_this_process() {
  RunRecord record;
  record.host = this_host();
  record.pid = ::getpid();
  record.process_start = start_of_process(record.pid);
  return record;
}

bool may_be_alive(const RunRecord& record) {
  if (record.pid <= 0 || record.host != this_host()) return true;
  if (::kill(record.pid, 0) != 0 && errno == ESRCH) return false;
  const auto start = start_of_process(record.pid);
  return start == 0 || record.process_start == 0 || start == record.process_start;
}

std::string to_json(const RunRecord& record) {
  Json json;
  json["format"] = kRunFormat;
  json["id"] = record.id;
  json["state"] = name_of(record.state);
  json["exit"] = record.exit ? Json(*record.exit) : Json(nullptr);
  json["message"] = record.message;
  json["recipe"] = record.recipe;
  json["command"] = record.command;
  json["started"] = record.started;
  json["finished"] = record.finished;
  json["host"] = record.host;
  json["pid"] = record.pid;
  json["process_start"] = record.process_start;
  if (record.comparison) json["prediction"] = json_of(*record.comparison);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunRecord detail::parse_record(const std::string& json, const std::string& place) {
  RunRecord record;
  int format = 0;
  try {
    const auto object = Json::parse(json);
    format = object.at("format").get<int>();
    if (format <= kRunFormat) {
      record.id = object.at("id").get<std::string>();
      record.state = state_in(object);
      if (!object.at("exit").is_null()) record.exit = object.at("exit").get<int>();
      record.message = object.at("message").get<std::string>();
      record.recipe = object.at("recipe").get<std::string>();
      record.command = object.at("command").get<std::string>();
      record.started = object.at("started").get<std::string>();
      record.finished = object.at("finished").get<std::string>();
      record.host = object.at("host").get<std::string>();
      record.pid = object.at("pid").get<int>();
      record.process_start = object.value("process_start", std::int64_t{0});
      record.comparison = comparison_in(object);
    }
  } catch (const std::exception& problem) {
    throw Error(Fault::io, place, ": is damaged: ", json_problem(problem));
  }
  if (format > kRunFormat) {
    throw Error(Fault::config, place, ": has format ", format,
                ", this program reads up to ", kRunFormat, "; use a newer Lockstep");
  }
  return record;
}

}  // namespace lockstep::run
