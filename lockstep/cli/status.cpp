// lockstep status [RUN]: how a run is, or how it ended.
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/run_view.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShownEvents = 5;

std::string value_text(const run::Field& field) {
  if (const auto* word = std::get_if<std::string>(&field.value)) return *word;
  if (const auto* real = std::get_if<double>(&field.value)) {
    return fmt::format("{:.6g}", *real);
  }
  if (const auto* flag = std::get_if<bool>(&field.value))
    return *flag ? "true" : "false";
  return fmt::format("{}", std::get<std::int64_t>(field.value));
}

std::string fields_text(const std::vector<run::Field>& fields) {
  std::string result;
  for (const auto& field : fields) {
    result += fmt::format("  {} {}", field.name, value_text(field));
  }
  return result;
}

std::string metrics_text(const monitor::Metrics& metrics) {
  return fmt::format("step {}  loss {:.6g}{}", metrics.step, metrics.loss,
                     fields_text(metrics.more));
}

std::string step_text(const jobs::RunView& view) {
  if (!view.step) return "-";
  if (!view.total_steps) return fmt::format("{}", *view.step);
  const auto percent = *view.total_steps > 0
                           ? 100.0 * static_cast<double>(*view.step) /
                                 static_cast<double>(*view.total_steps)
                           : 100.0;
  return fmt::format("{}/{} ({:.0f} %)", *view.step, *view.total_steps, percent);
}

std::vector<std::vector<std::string>> rows_of(const jobs::RunView& view) {
  std::vector<std::vector<std::string>> rows{
      {"run", fmt::format("{}  ({})", view.record.id, view.path)},
      {"state", view.state_text()},
      {"recipe", view.record.recipe.empty() ? "-" : view.record.recipe},
      {"started", short_time(view.record.started)},
      {"duration", view.duration_text()},
      {"step", step_text(view)}};
  if (view.record.exit) rows.push_back({"exit", fmt::format("{}", *view.record.exit)});
  if (!view.record.message.empty()) rows.push_back({"message", view.record.message});
  if (view.beat && !run::is_final(view.record.state)) {
    rows.push_back({"heartbeat", fmt::format("{:.1f} s ago, {}", *view.beat_age_seconds,
                                             run::name_of(view.beat->phase))});
  }
  if (view.train) rows.push_back({"train", metrics_text(*view.train)});
  if (view.eval) rows.push_back({"eval", metrics_text(*view.eval)});
  return rows;
}

Json events_json(const std::vector<run::Event>& events) {
  auto json = Json::array();
  for (const auto& event : events) {
    std::vector<run::Field> fields{{"time", event.time}, {"event", event.kind}};
    fields.insert(fields.end(), event.fields.begin(), event.fields.end());
    json.push_back(Json::parse(run::to_json_line(fields)));
  }
  return json;
}

int status(const Arguments& arguments, Context& context) {
  const auto directory = arguments.value("--dir").value_or(default_run_dir(context));
  const auto run = jobs::find_run("status", arguments.operand("RUN"), directory);
  const auto view = jobs::view_of(run);
  const auto events = run::last_events(run.events(), kShownEvents);
  if (arguments.has("--json")) {
    auto json = Json::parse(to_json(view));
    json["events"] = events_json(events);
    context.out << json_line(json);
    return kExitOk;
  }
  context.out << text::table(rows_of(view));
  for (const auto& event : events) {
    const auto time = WallTime(std::chrono::duration_cast<WallTime::duration>(
        std::chrono::duration<double>(event.time)));
    context.out << "event      " << short_time(iso_time(time)) << "  " << event.kind
                << fields_text(event.fields) << "\n";
  }
  return kExitOk;
}

}  // namespace

Command status_command() {
  return {.name = "status",
          .summary = "Show the state of a run, or how it ended.",
          .usage = "lockstep status [RUN] [--dir DIR] [--json]",
          .details = "Times are UTC.\n",
          .operands = {{.name = "RUN",
                        .help = "A run's id or path (default: the newest run).",
                        .required = false,
                        .completes = Completes::directory}},
          .options = {{.name = "--dir",
                       .value = "DIR",
                       .help = "The directory that holds the runs (default: "
                               "LOCKSTEP_RUN_DIR, else runs).",
                       .completes = Completes::directory},
                      {.name = "--json", .help = "One JSON object."}},
          .run = status};
}

}  // namespace lockstep::cli
