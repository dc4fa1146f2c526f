#include "lockstep/report/report.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"
#include "lockstep/monitor/catalogue.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/report/chart.h"
#include "lockstep/report/detail/confusion.h"
#include "lockstep/report/detail/report_parts.h"
#include "lockstep/run/events.h"
#include "lockstep/run/knobs.h"

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;
using detail::Rows;
using Knobs = std::map<std::string, std::string>;

constexpr std::size_t kShownEvents = 200;
constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark}
body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:1400px;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1rem}
svg{width:100%;height:auto}path{stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}
.title{font-size:14px;font-weight:600;fill:currentColor}.tick{font-size:11px}
.tick:not([fill]){fill:gray}.grid{stroke:gray;stroke-opacity:.25}
.tip{fill:Canvas;stroke:gray;stroke-opacity:.6}
table.matrix td{text-align:right;padding:.25rem .6rem}
table{border-collapse:collapse}td,th{text-align:left;padding:.15rem .9rem .15rem 0;vertical-align:top}
th{border-bottom:1px solid gray}td{font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto}
)";

// The files of a run that were read.
struct Loaded {
  run::RunRecord record;
  std::vector<monitor::Metrics> metrics;
  std::vector<std::vector<run::NamedValue>> system;
  std::vector<run::Event> events;
  Json plan, summary;
  Rows machine, prediction, texts;
  std::string confusion;
  Knobs knobs;
};

Json json_at(const files::Path& path) {
  try {
    return Json::parse(files::read(path, 16 << 20), nullptr, false);
  } catch (const Error&) {
    return Json(Json::value_t::discarded);
  }
}

Loaded load(const run::RunDirectory& run) {
  Loaded loaded{.record = run.read_record(),
                .metrics = monitor::read_metrics(run.metrics()),
                .system = {},
                .events = run::last_events(run.events(), kShownEvents),
                .plan = json_at(run.plan()),
                .summary = json_at(run.summary()),
                .machine = detail::machine_rows(run),
                .prediction = detail::prediction_rows(run),
                .texts = detail::text_rows(run),
                .confusion = {},
                .knobs = run::read_knobs(run.config())};
  loaded.confusion = detail::confusion_table(run, loaded.metrics);
  constexpr std::int64_t kLimit = 256 << 20;
  for (const auto& line : text::split(files::read_tail(run.system(), kLimit), '\n')) {
    if (auto fields = run::parse_json_line(line))
      loaded.system.push_back(std::move(*fields));
  }
  return loaded;
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string table(const Rows& rows, bool with_header) {
  std::string html = "<div class=\"scroll\"><table>";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto* cell = with_header && i == 0 ? "th" : "td";
    html += "<tr>";
    for (const auto& text : rows[i]) {
      html += fmt::format("<{0}>{1}</{0}>", cell, html_text(text));
    }
    html += "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string section(std::string_view title, const std::string& content) {
  if (content.empty()) return "";
  return fmt::format("<h2>{}</h2>\n{}", html_text(title), content);
}

// Returns "train/loss" over steps, of each run that has it. A color is a run's, or, of
// a single one, that of a split; of several runs evaluations are dashed.
Chart over_steps(
    const std::vector<Loaded>& runs, const std::string& title,
    std::initializer_list<std::pair<monitor::Split, std::string>> metrics) {
  Chart chart{.title = title, .unit = "", .x_name = "step", .lines = {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    for (const auto& [split, name] : metrics) {
      const bool is_eval = split == monitor::Split::eval;
      const std::string who = metrics.size() > 1 ? std::string(name_of(split)) : "";
      ChartLine line{.name = runs.size() > 1 ? run.record.id + " " + who : who,
                     .points = {},
                     .color = runs.size() > 1 ? i
                              : is_eval       ? 1U
                                              : 0U,
                     .dashed = runs.size() > 1 && is_eval};
      if (line.name.empty()) line.name = title;
      for (const auto& one : run.metrics) {
        if (one.split != split) continue;
        const auto value = name == "loss" ? std::optional(one.loss) : one.find(name);
        if (value) line.points.emplace_back(static_cast<double>(one.step), *value);
      }
      if (!line.points.empty()) chart.lines.push_back(std::move(line));
    }
  }
  return chart;
}

// Returns a metric of the machine over minutes, a line for each run and GPU.
Chart over_time(const std::vector<Loaded>& runs, const std::string& title,
                const std::string& metric) {
  const auto* info = monitor::find_metric(metric);
  Chart chart{.title = title,
              .unit = info == nullptr ? "" : std::string(info->unit),
              .x_name = "minutes",
              .lines = {}};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto& run = runs[i];
    std::map<std::string, ChartLine> lines;
    std::optional<double> start;
    for (const auto& sample : run.system) {
      double time = 0;
      for (const auto& field : sample) {
        if (field.name == "time") time = run::number_of(field).value_or(0);
        if (!start) start = time;
        if (field.name.substr(0, field.name.find('.')) != metric) continue;
        const auto dot = field.name.find('.');
        auto& line = lines[field.name];
        line.name = runs.size() > 1 ? run.record.id : "";
        if (dot != std::string::npos) {
          line.name +=
              (line.name.empty() ? "GPU " : " GPU ") + field.name.substr(dot + 1);
        }
        line.points.emplace_back((time - *start) / 60,
                                 run::number_of(field).value_or(0));
      }
    }
    // A color is a run's, or, of a single one, that of a GPU.
    std::size_t which = 0;
    for (auto& [name, line] : lines) {
      line.color = runs.size() > 1 ? i : which++;
      if (line.name.empty()) line.name = title;
      chart.lines.push_back(std::move(line));
    }
  }
  return chart;
}

// Returns what the tasks of the runs measure: the primary metric, and each loss by its
// name.
std::map<std::string, std::string> task_metrics(const std::vector<Loaded>& runs) {
  std::map<std::string, std::string> titles;
  const auto add = [&](const std::string& name) {
    auto title = name;
    std::replace(title.begin(), title.end(), '_', ' ');
    title[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(title[0])));
    titles[name] = title;
  };
  for (const auto& run : runs) {
    for (const auto& one : run.metrics) {
      const auto primary =
          one.split == monitor::Split::eval ? monitor::primary_of(one) : std::nullopt;
      if (primary && primary->name != "loss") add(primary->name);
      for (const auto& field : one.more) {
        if (field.name.starts_with("loss_")) add(field.name);
      }
    }
  }
  return titles;
}

std::string charts(const std::vector<Loaded>& runs) {
  auto loss = over_steps(
      runs, "Loss", {{monitor::Split::train, "loss"}, {monitor::Split::eval, "loss"}});
  loss.logarithmic = true;
  std::string svgs = svg_of(loss);
  for (const auto& [name, title] : task_metrics(runs)) {
    svgs += svg_of(over_steps(
        runs, title, {{monitor::Split::train, name}, {monitor::Split::eval, name}}));
  }
  svgs += svg_of(over_steps(runs, "Learning rate", {{monitor::Split::train, "lr"}}));
  svgs += svg_of(over_steps(runs, "Samples per second",
                            {{monitor::Split::train, "samples_per_second"}}));
  svgs += svg_of(over_steps(runs, "Tokens per second",
                            {{monitor::Split::train, "tokens_per_second"}}));
  svgs += svg_of(over_steps(runs, "Step time, seconds",
                            {{monitor::Split::train, "step_seconds"}}));
  svgs += svg_of(over_steps(runs, "MFU, share of peak FLOPs",
                            {{monitor::Split::train, "mfu_ratio"}}));
  svgs += svg_of(
      over_steps(runs, "Gradient norm", {{monitor::Split::train, "gradient_norm"}}));
  svgs += svg_of(over_steps(runs, "Memory of rank 0, bytes",
                            {{monitor::Split::train, "memory_bytes"}}));
  for (const auto& [title, metric] :
       std::initializer_list<std::pair<const char*, const char*>>{
           {"GPU utilization", "gpu_utilization_ratio"},
           {"GPU memory", "gpu_memory_used_bytes"},
           {"GPU power", "gpu_power_watts"},
           {"GPU temperature", "gpu_temperature_celsius"},
           {"CPU utilization", "cpu_utilization_ratio"},
           {"Host memory", "host_memory_used_bytes"}}) {
    svgs += svg_of(over_time(runs, title, metric));
  }
  return svgs.empty() ? "" : "<div class=\"charts\">" + svgs + "</div>\n";
}

// Returns "2026-11-19 18:55:23" of "2026-11-19T18:55:23.156Z".
std::string readable_time(const std::string& iso) {
  auto text = iso.substr(0, iso.find_first_of(".Z"));
  std::replace(text.begin(), text.end(), 'T', ' ');
  return text;
}

std::string run_table(const std::vector<Loaded>& runs) {
  Rows rows{{"run", "state", "recipe", "started (UTC)", "finished", "host", "step",
             "loss", "last evaluation"}};
  const bool any_energy = std::any_of(runs.begin(), runs.end(), [](const Loaded& run) {
    return run.summary.is_object() &&
           run.summary.value("energy_kwh", Json()).is_number();
  });
  if (any_energy) rows[0].emplace_back("energy");
  for (const auto& run : runs) {
    std::string step = "-", loss = "-", primary = "-", energy = "-";
    for (const auto& one : run.metrics) {
      step = fmt::format("{}", one.step);
      if (one.split == monitor::Split::train) loss = fmt::format("{:.5g}", one.loss);
      const auto counts =
          one.split == monitor::Split::eval ? monitor::primary_of(one) : std::nullopt;
      if (counts) primary = fmt::format("{} {:.4f}", counts->name, counts->value);
    }
    if (run.summary.is_object() &&
        run.summary.value("energy_kwh", Json()).is_number()) {
      energy = fmt::format("{:.4g} kWh", run.summary["energy_kwh"].get<double>());
    }
    const auto& record = run.record;
    rows.push_back({record.id, std::string(name_of(record.state)), record.recipe,
                    readable_time(record.started), readable_time(record.finished),
                    record.host, step, loss, primary});
    if (any_energy) rows.back().push_back(energy);
  }
  return table(rows, true);
}

std::string differences(const std::vector<Loaded>& runs) {
  if (runs.size() < 2) return "";
  std::set<std::string> keys;
  for (const auto& run : runs) {
    for (const auto& [key, value] : run.knobs) keys.insert(key);
  }
  Rows rows{{"knob"}};
  for (const auto& run : runs) rows[0].push_back(run.record.id);
  for (const auto& key : keys) {
    std::vector<std::string> row{key};
    std::set<std::string> values;
    for (const auto& run : runs) {
      const auto found = run.knobs.find(key);
      row.push_back(found == run.knobs.end() ? "-" : found->second);
      values.insert(row.back());
    }
    if (values.size() > 1) rows.push_back(std::move(row));
  }
  return rows.size() == 1 ? "<p>None.</p>\n" : table(rows, true);
}

std::string plan_table(const Loaded& run) {
  if (!run.plan.is_object() || !run.plan.value("choices", Json()).is_array()) return "";
  Rows rows{{"knob", "value", "because"}};
  for (const auto& choice : run.plan["choices"]) {
    if (!choice.is_object()) continue;
    rows.push_back(
        {text_at(choice, "key"), text_at(choice, "value"), text_at(choice, "because")});
  }
  return rows.size() == 1 ? "" : table(rows, true);
}

std::string summary_table(const Loaded& run) {
  if (!run.summary.is_object() || !run.summary.value("metrics", Json()).is_object()) {
    return "";
  }
  Rows rows{{"metric", "mean", "lowest", "highest", "median", "95 % below"}};
  for (const auto& [name, stats] : run.summary["metrics"].items()) {
    if (!stats.is_object()) continue;
    std::vector<std::string> row{name};
    for (const auto* key : {"mean", "min", "max", "p50", "p95"}) {
      const auto value = stats.value(key, Json());
      row.push_back(value.is_number() ? fmt::format("{:.5g}", value.get<double>())
                                      : "-");
    }
    rows.push_back(std::move(row));
  }
  return table(rows, true);
}

std::string event_table(const Loaded& run) {
  if (run.events.empty()) return "";
  Rows rows{{"time", "event", ""}};
  for (const auto& event : run.events) {
    if (event.kind == "sample") continue;
    const auto since = std::chrono::duration_cast<WallTime::duration>(
        std::chrono::duration<double>(event.time));
    rows.push_back(
        {iso_time(WallTime(since)), event.kind, run::to_json_line(event.fields)});
  }
  return table(rows, true);
}

std::string details(const Loaded& run, bool several) {
  const auto of = several ? " of " + run.record.id : std::string();
  std::string html;
  if (!run.machine.empty()) html += section("Machine" + of, table(run.machine, false));
  if (!run.prediction.empty()) {
    html += section("Predicted and measured" + of, table(run.prediction, true));
  }
  html += section("Plan" + of, plan_table(run));
  html += section("Numbers" + of, summary_table(run));
  html += section("Confusion matrix" + of, run.confusion);
  if (!run.texts.empty()) html += section("Texts" + of, table(run.texts, true));
  html += section("Events" + of, event_table(run));
  Rows knobs{{"knob", "value"}};
  for (const auto& [key, value] : run.knobs) knobs.push_back({key, value});
  if (knobs.size() > 1) {
    html += fmt::format("<details><summary>Config of {}</summary>{}</details>\n",
                        html_text(run.record.id), table(knobs, true));
  }
  return html;
}

}  // namespace

std::string report_html(const std::vector<run::RunDirectory>& directories) {
  std::vector<Loaded> runs;
  std::vector<std::string> names;
  for (const auto& directory : directories) {
    runs.push_back(load(directory));
    names.push_back(runs.back().record.id);
  }
  const auto title = "Lockstep " + text::join(names, ", ");
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta "
      "name=\"viewport\" content=\"width=device-width\"><title>{0}</title><style>{1}"
      "</style></head><body>\n<h1>{0}</h1>\n",
      html_text(title), kStyle);
  html += run_table(runs);
  html += section("Curves", charts(runs));
  html += section("What differs in the configs", differences(runs));
  for (const auto& run : runs) html += details(run, runs.size() > 1);
  return html + std::string(kTooltips) + "</body></html>\n";
}

}  // namespace lockstep::report
