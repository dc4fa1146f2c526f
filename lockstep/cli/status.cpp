// lockstep status [RUN]: how a run is, or how it ended.
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/human_text.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/top.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kShownEvents = 5;

using Pieces = std::vector<std::string>;

// The name of a line, and what is in it.
struct Row {
  std::string name;
  Pieces pieces;
};

void add_fields(const std::vector<run::NamedValue>& fields, Pieces& pieces) {
  for (const auto& field : fields) pieces.push_back(human_text(field));
}

Pieces pieces_of(const monitor::Metrics& metrics) {
  Pieces pieces{fmt::format("step {}", metrics.step),
                fmt::format("loss {:.6g}", metrics.loss)};
  add_fields(metrics.more, pieces);
  return pieces;
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

std::vector<Row> rows_of(const jobs::RunView& view) {
  std::vector<Row> rows{
      {"run", {fmt::format("{}  ({})", view.record.id, view.path)}},
      {"state", {view.state_text()}},
      {"recipe", {view.record.recipe.empty() ? "-" : view.record.recipe}},
      {"started", {short_time(view.record.started)}},
      {"duration", {view.duration_text()}},
      {"step", {step_text(view)}}};
  if (view.record.exit) rows.push_back({"exit", {str(*view.record.exit)}});
  if (!view.record.message.empty()) {
    for (const auto& line : text::split(view.record.message, '\n')) {
      rows.push_back(
          {rows.back().name == "message" ? "" : "message", {std::string(line)}});
    }
  }
  if (view.beat && !run::is_final(view.record.state)) {
    rows.push_back({"heartbeat",
                    {fmt::format("{:.1f} s ago, {}", *view.beat_age_seconds,
                                 run::name_of(view.beat->phase))}});
  }
  if (view.train) rows.push_back({"train", pieces_of(*view.train)});
  if (view.eval) rows.push_back({"eval", pieces_of(*view.eval)});
  return rows;
}

Row row_of(const run::Event& event) {
  const auto time = WallTime(std::chrono::duration_cast<WallTime::duration>(
      std::chrono::duration<double>(event.time)));
  Row row{"event", {short_time(iso_time(time)) + "  " + event.kind}};
  add_fields(event.fields, row.pieces);
  return row;
}

// Returns the rows below each other, none wider than the screen.
std::string text_of(const std::vector<Row>& rows, std::size_t width) {
  constexpr std::size_t kNames = 11;
  std::string text;
  for (const auto& [name, pieces] : rows) {
    auto line = name;
    line.resize(kNames, ' ');
    for (const auto& part : wrapped(pieces, kNames, width)) {
      text += line + part + "\n";
      line.clear();  // the others bring their indent with them
    }
  }
  return text;
}

Json events_json(const std::vector<run::Event>& events) {
  auto json = Json::array();
  for (const auto& event : events) {
    std::vector<run::NamedValue> fields{{"time", event.time}, {"event", event.kind}};
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
  auto rows = rows_of(view);
  for (const auto& event : events) rows.push_back(row_of(event));
  const auto width = static_cast<std::size_t>(screen_of(context).columns);
  context.out << printable(text_of(rows, width));
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
