// lockstep runs [DIR]: the runs below a directory, newest first.
#include <algorithm>
#include <ostream>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string loss_of(const jobs::RunView& run) {
  return run.train ? fmt::format("{:.4f}", run.train->loss) : "-";
}

std::string primary_of(const jobs::RunView& run) {
  const auto primary = run.eval ? monitor::primary_of(*run.eval) : std::nullopt;
  return primary ? fmt::format("{} {:.4f}", primary->name, primary->value) : "-";
}

// Returns the recipe with what is special about the run: another command than train,
// its tags, knobs that were typed.
std::string recipe_of(const jobs::RunView& run) {
  std::vector<std::string> words;
  if (run.kind != "train") words.push_back("(" + run.kind + ")");
  words.push_back(run.record.recipe.empty() ? "-" : run.record.recipe);
  for (const auto& tag : run.tags) words.push_back("#" + tag);
  words.insert(words.end(), run.overrides.begin(), run.overrides.end());
  return text::join(words, " ");
}

std::string value_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.5g}", *value) : "-";
}

std::vector<std::string> row_of(const jobs::RunView& run,
                                const std::vector<std::string>& metrics) {
  std::vector<std::string> row{run.record.id,
                               run.state_text(),
                               short_time(run.record.started),
                               run.duration_text(),
                               run.step ? fmt::format("{}", *run.step) : "-",
                               loss_of(run)};
  if (metrics.empty()) row.push_back(primary_of(run));
  for (const auto& name : metrics) row.push_back(value_text(run.find_metric(name)));
  row.push_back(recipe_of(run));
  return row;
}

bool is_wanted(const Arguments& arguments, const jobs::RunView& run) {
  const auto is = [&](std::string_view option, const std::string& value) {
    const auto wanted = arguments.value(option);
    return !wanted || *wanted == value;
  };
  const auto tag = arguments.value("--tag");
  const auto recipe = arguments.value("--recipe");
  return is("--state", run.gone ? "failed" : std::string(name_of(run.record.state))) &&
         is("--kind", run.kind) &&
         (!tag ||
          std::find(run.tags.begin(), run.tags.end(), *tag) != run.tags.end()) &&
         (!recipe || run.record.recipe.find(*recipe) != std::string::npos);
}

std::optional<double> key_of(const std::string& sort, const jobs::RunView& run) {
  if (sort == "duration") return run.duration_seconds;
  if (sort != "step") return run.find_metric(sort);
  return run.step ? std::optional(static_cast<double>(*run.step)) : std::nullopt;
}

// Sorts the smallest first, or with --reverse the largest; runs without the number come
// last. Those that are equal stay newest first.
void sort_runs(const Arguments& arguments, std::vector<jobs::RunView>& runs) {
  const bool reverse = arguments.has("--reverse");
  const auto sort = arguments.value("--sort").value_or("started");
  if (sort == "started") {
    if (reverse) std::reverse(runs.begin(), runs.end());
    return;
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [&](const jobs::RunView& a, const jobs::RunView& b) {
                     const auto x = key_of(sort, a), y = key_of(sort, b);
                     if (!x || !y) return x.has_value() && !y;
                     return reverse ? *x > *y : *x < *y;
                   });
}

// A metric that no run has is a mistake in its name.
void check_metrics(const std::vector<std::string>& names,
                   const std::vector<jobs::RunView>& runs) {
  std::set<std::string> known{"loss"};
  for (const auto& run : runs) {
    for (const auto* metrics : {&run.eval, &run.train}) {
      if (!*metrics) continue;
      for (const auto& field : (*metrics)->more) known.insert(field.name);
    }
  }
  const std::vector<std::string> list(known.begin(), known.end());
  for (const auto& name : names) {
    if (known.contains(name) || runs.empty()) continue;
    throw Error(Fault::config, "runs: no run has a metric '", name, "'",
                text::did_you_mean(name, list), "; there are ", text::join(list, ", "));
  }
}

struct Listing {
  std::vector<jobs::RunView> runs;
  std::vector<run::SkippedEntry> skipped;
};

// One run that can not be read, or is being deleted, does not hide the others.
Listing list_in(const std::string& directory) {
  auto found = run::list_runs(directory);
  Listing list{.runs = {}, .skipped = std::move(found.skipped)};
  for (const auto& entry : found.runs) {
    try {
      list.runs.push_back(jobs::view_of(entry.directory));
    } catch (const Error& problem) {
      list.skipped.push_back({entry.directory.path(), problem.what()});
    }
  }
  return list;
}

Json json_of(const Listing& list, const std::string& directory) {
  Json json;
  json["dir"] = directory;
  json["runs"] = Json::array();
  for (const auto& run : list.runs) json["runs"].push_back(Json::parse(to_json(run)));
  json["skipped"] = Json::array();
  for (const auto& entry : list.skipped) {
    json["skipped"].push_back(
        {{"path", entry.path.string()}, {"reason", entry.reason}});
  }
  return json;
}

void print_table(const std::vector<jobs::RunView>& runs,
                 const std::vector<std::string>& metrics, Context& context) {
  std::vector<std::vector<std::string>> rows{
      {"ID", "STATE", "STARTED", "DURATION", "STEP", "LOSS"}};
  if (metrics.empty()) rows[0].push_back("EVALUATION");
  rows[0].insert(rows[0].end(), metrics.begin(), metrics.end());
  rows[0].push_back("RECIPE");
  for (const auto& run : runs) rows.push_back(row_of(run, metrics));
  context.out << printable(text::table(rows, {3, 4, 5}));
}

int runs(const Arguments& arguments, Context& context) {
  const auto directory = arguments.operand("DIR").value_or(default_run_dir(context));
  auto list = list_in(directory);
  const auto metrics = arguments.values("--metric");
  auto named = metrics;
  const auto sort = arguments.value("--sort").value_or("started");
  if (sort != "started" && sort != "duration" && sort != "step") named.push_back(sort);
  check_metrics(named, list.runs);
  std::erase_if(list.runs, [&](const auto& run) { return !is_wanted(arguments, run); });
  sort_runs(arguments, list.runs);
  if (arguments.has("--json")) {
    context.out << json_line(json_of(list, directory));
    return kExitOk;
  }
  for (const auto& entry : list.skipped) {
    context.err << printable(str("skipped ", entry.path.string(), ": ", entry.reason))
                << "\n";
  }
  if (list.runs.empty()) {
    context.err << "no runs in '" << printable(directory)
                << "'; `lockstep train RECIPE` makes one\n";
    return kExitOk;
  }
  print_table(list.runs, metrics, context);
  return kExitOk;
}

}  // namespace

Command runs_command() {
  return {
      .name = "runs",
      .summary = "List the runs, newest first.",
      .usage = "lockstep runs [DIR] [options]",
      .details =
          "  lockstep runs --state done --sort loss\n"
          "  lockstep runs --metric accuracy --metric mfu_ratio --tag baseline\n\n"
          "LOSS is the last training loss, EVALUATION the primary metric of the last\n"
          "evaluation. After a recipe come its tags (run.tags) and the overrides "
          "given;\n"
          "runs of find-lr, bench, parity and launch are marked as such.\n",
      .operands = {{.name = "DIR",
                    .help = "The directory that holds the runs (default: "
                            "LOCKSTEP_RUN_DIR, else runs).",
                    .required = false,
                    .completes = Completes::directory}},
      .options = {{.name = "--state",
                   .value = "STATE",
                   .help = "Only runs in this state.",
                   .choices = {"planned", "running", "done", "failed", "stopped"}},
                  {.name = "--kind",
                   .value = "KIND",
                   .help = "Only runs of this command.",
                   .choices = {"train", "find-lr", "bench", "parity", "launch"}},
                  {.name = "--recipe",
                   .value = "TEXT",
                   .help = "Only runs whose recipe has this in its name."},
                  {.name = "--tag", .value = "TAG", .help = "Only runs with this tag."},
                  {.name = "--metric",
                   .value = "NAME",
                   .help = "A column with its last value; may be given several "
                           "times."},
                  {.name = "--sort",
                   .value = "BY",
                   .help = "started (newest first, the default), duration, step, "
                           "loss or any metric, smallest first.",
                   .choices = {"started", "duration", "step", "loss"},
                   .free_text = true},
                  {.name = "--reverse", .help = "Reverse the order."},
                  {.name = "--json", .help = "One JSON object."}},
      .run = runs};
}

}  // namespace lockstep::cli
