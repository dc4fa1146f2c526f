// lockstep runs [DIR]: the runs below a directory, newest first.
#include <ostream>

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

std::vector<std::string> row_of(const jobs::RunView& run) {
  return {run.record.id,
          run.state_text(),
          run.record.recipe.empty() ? "-" : run.record.recipe,
          short_time(run.record.started),
          run.duration_text(),
          run.step ? fmt::format("{}", *run.step) : "-",
          loss_of(run),
          primary_of(run)};
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

int runs(const Arguments& arguments, Context& context) {
  const auto directory = arguments.operand("DIR").value_or(default_run_dir(context));
  const auto list = list_in(directory);
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
  std::vector<std::vector<std::string>> rows{
      {"ID", "STATE", "RECIPE", "STARTED", "DURATION", "STEP", "LOSS", "EVALUATION"}};
  for (const auto& run : list.runs) rows.push_back(row_of(run));
  context.out << text::table(rows, {4, 5, 6});
  return kExitOk;
}

}  // namespace

Command runs_command() {
  return {.name = "runs",
          .summary = "List the runs, newest first.",
          .usage = "lockstep runs [DIR] [--json]",
          .details =
              "LOSS is the last one of training, EVALUATION what counts of the last "
              "evaluation.\n",
          .operands = {{.name = "DIR",
                        .help = "The directory that holds the runs (default: "
                                "LOCKSTEP_RUN_DIR, else runs).",
                        .required = false,
                        .completes = Completes::directory}},
          .options = {{.name = "--json", .help = "One JSON object."}},
          .run = runs};
}

}  // namespace lockstep::cli
