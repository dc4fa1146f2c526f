#include "lockstep/jobs/run_view.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/run/knobs.h"
#include "lockstep/run/run_lock.h"

namespace lockstep::jobs {
namespace {

using Json = nlohmann::ordered_json;

std::optional<run::Beat> last_beat(const run::RunDirectory& run) {
  try {
    return run::HeartbeatReader(run.heartbeat()).read(0);
  } catch (const Error&) {
    return std::nullopt;  // not started yet, or from before its first beat
  }
}

// The worker says when it starts how far it means to go; one that went on may mean to
// go further than before.
std::optional<std::int64_t> planned_steps(const run::RunDirectory& run) {
  std::optional<std::int64_t> total;
  for (const auto& event : run::last_events(run.events(), 1000)) {
    for (const auto& field : event.fields) {
      const auto* steps = std::get_if<std::int64_t>(&field.value);
      if (field.name == "total_steps" && steps != nullptr) total = *steps;
    }
  }
  return total;
}

// Returns the command that made the run: a sweep or a timing is no training.
std::string kind_of(const std::string& command) {
  const auto padded = command + " ";
  for (const auto* kind : {"find-lr", "bench", "parity", "launch"}) {
    if (padded.find(str(" ", kind, " ")) != std::string::npos) return kind;
  }
  return "train";
}

// Returns the words that set knobs: "optim.lr=3e-4".
std::vector<std::string> overrides_in(const std::string& command) {
  std::vector<std::string> found;
  for (const auto& part : text::split(command, ' ')) {
    const std::string word(part);
    const auto key = word.substr(0, word.find('='));
    const bool sets = key.size() < word.size() && key.find('.') != std::string::npos &&
                      key.find_first_of("-/'\"") == std::string::npos;
    if (sets) found.push_back(word);
  }
  return found;
}

// Returns the words of "[baseline, a b]".
std::vector<std::string> tags_in(const std::map<std::string, std::string>& knobs) {
  const auto found = knobs.find("run.tags");
  if (found == knobs.end()) return {};
  std::vector<std::string> tags;
  for (const auto& part : text::split(found->second, ',')) {
    std::string tag(part);
    std::erase_if(tag, [](char c) { return c == '[' || c == ']' || c == '"'; });
    tag = text::trim(tag);
    if (!tag.empty()) tags.push_back(tag);
  }
  return tags;
}

Json json_or_null(const std::optional<monitor::Metrics>& metrics) {
  if (!metrics) return nullptr;
  std::vector<run::NamedValue> fields{
      {"step", metrics->step}, {"loss", metrics->loss}, {"time", metrics->time}};
  fields.insert(fields.end(), metrics->more.begin(), metrics->more.end());
  return Json::parse(run::to_json_line(fields));
}

template <typename T>
Json json_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace

run::RunDirectory find_run(std::string_view command,
                           const std::optional<std::string>& run,
                           const std::string& directory) {
  const auto list = run::list_runs(directory);
  if (!run) {
    if (!list.runs.empty()) return list.runs.front().directory;
    throw Error(Fault::config, command, ": there is no run in '", directory,
                "'; `lockstep train RECIPE` makes one, --dir names another place");
  }
  std::error_code ignored;
  const std::filesystem::path by_id = std::filesystem::path(directory) / *run;
  if (std::filesystem::exists(by_id / "run.json", ignored)) {
    return run::RunDirectory::open(by_id);
  }
  if (std::filesystem::exists(*run, ignored)) return run::RunDirectory::open(*run);
  std::vector<std::string> known;
  for (const auto& entry : list.runs) known.push_back(entry.record.id);
  const auto hint = text::did_you_mean(*run, known);
  throw Error(Fault::config, command, ": there is no run '", *run, "' in '", directory,
              "'", hint.empty() ? "; `lockstep runs` lists the runs" : hint);
}

RunView view_of(const run::RunDirectory& run, const Clock& clock) {
  RunView view;
  view.path = run.path().string();
  view.record = run.read_record();
  view.gone = !run::is_final(view.record.state) && !run::may_be_alive(run, view.record);
  view.beat = last_beat(run);
  view.train = monitor::last_metrics(run.metrics(), monitor::Split::train);
  view.eval = monitor::last_metrics(run.metrics(), monitor::Split::eval);
  view.total_steps = planned_steps(run);
  view.kind = kind_of(view.record.command);
  view.overrides = overrides_in(view.record.command);
  view.tags = tags_in(run::read_knobs(run.config()));
  if (view.beat) {
    view.beat_age_seconds = unix_seconds(clock.wall()) - view.beat->time;
    view.step = view.beat->step;
  } else if (view.train) {
    view.step = view.train->step;
  }
  const auto begin = parse_iso_time(view.record.started);
  auto end = parse_iso_time(view.record.finished);
  if (!end && !view.gone) end = clock.wall();
  if (begin && end) view.duration_seconds = unix_seconds(*end) - unix_seconds(*begin);
  return view;
}

std::optional<double> RunView::find_metric(std::string_view name) const {
  for (const auto* metrics : {&eval, &train}) {
    if (!*metrics) continue;
    if (name == "loss") return (*metrics)->loss;
    if (const auto value = (*metrics)->find(name)) return value;
  }
  return std::nullopt;
}

std::string RunView::state_text() const {
  if (gone) return "failed (process is gone)";
  return std::string(run::name_of(record.state));
}

std::string RunView::duration_text() const {
  if (!duration_seconds) return "-";
  return units::format_clock(
      std::chrono::seconds(static_cast<std::int64_t>(*duration_seconds)));
}

std::string to_json(const RunView& view) {
  Json json;
  json["id"] = view.record.id;
  json["path"] = view.path;
  json["state"] = view.gone ? "failed" : run::name_of(view.record.state);
  json["process_is_gone"] = view.gone;
  json["exit"] = json_or_null(view.record.exit);
  json["message"] = view.record.message;
  json["kind"] = view.kind;
  json["recipe"] = view.record.recipe;
  json["overrides"] = view.overrides;
  json["tags"] = view.tags;
  json["command"] = view.record.command;
  json["host"] = view.record.host;
  json["pid"] = view.record.pid;
  json["started"] = view.record.started;
  json["finished"] = view.record.finished;
  json["duration_seconds"] = json_or_null(view.duration_seconds);
  json["step"] = json_or_null(view.step);
  json["total_steps"] = json_or_null(view.total_steps);
  json["phase"] = view.beat ? Json(run::name_of(view.beat->phase)) : Json(nullptr);
  json["heartbeat_age_seconds"] = json_or_null(view.beat_age_seconds);
  json["train"] = json_or_null(view.train);
  json["eval"] = json_or_null(view.eval);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::jobs
