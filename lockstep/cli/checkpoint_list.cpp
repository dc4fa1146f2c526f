#include <ostream>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/cli/detail/checkpoint.h"
#include "lockstep/cli/detail/json_line.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"

namespace lockstep::cli {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

struct Row {
  storage::StepEntry entry;
  std::optional<storage::Manifest> manifest;
  std::string problem;    // "" if nothing wrong is known
  bool verified = false;  // every byte was read, and no file has changed since
  std::vector<std::string> names;
};

Row row_of(const storage::StepEntry& entry, storage::Depth depth) {
  Row row{.entry = entry};
  try {
    row.manifest = storage::verify(entry.path, depth);
    row.verified = depth == storage::Depth::full ||
                   storage::read_mark(entry.path, *row.manifest) == storage::Mark::read;
  } catch (const Error& error) {
    row.problem = error.what();
  }
  return row;
}

std::vector<Row> rows_in(const CheckpointPlace& place, storage::Depth depth) {
  std::vector<Row> rows;
  if (place.single) {
    rows.push_back(row_of({0, *place.single}, depth));
    if (rows[0].manifest) rows[0].entry.step = rows[0].manifest->step;
    return rows;
  }
  const auto best = storage::named(place.checkpoints, storage::kBest);
  const auto last = storage::named(place.checkpoints, storage::kLast);
  for (const auto& entry : storage::list_steps(place.checkpoints)) {
    rows.push_back(row_of(entry, depth));
    if (best == entry.path) rows.back().names.emplace_back(storage::kBest);
    if (last == entry.path) rows.back().names.emplace_back(storage::kLast);
  }
  return rows;
}

std::string_view state_of(const Row& row) {
  if (!row.problem.empty()) return "damaged";
  return row.verified ? "good" : "not verified";
}

Json json_of(const Row& row) {
  Json json = {{"step", row.entry.step},
               {"path", row.entry.path.string()},
               {"state", state_of(row)},
               {"good", row.verified || !row.problem.empty() ? Json(row.verified)
                                                             : Json(nullptr)},
               {"names", row.names}};
  if (!row.manifest) {
    json["problem"] = row.problem;
    return json;
  }
  json["time"] = row.manifest->time;
  json["bytes"] = row.manifest->total_bytes();
  json["tensors"] = row.manifest->tensors.size();
  json["world_size"] = row.manifest->world_size;
  if (row.manifest->metric) {
    json["metric"] = {{"name", row.manifest->metric->name},
                      {"value", row.manifest->metric->value}};
  }
  return json;
}

int print_json(const std::vector<Row>& rows, Context& context, int status) {
  Json json = {{"checkpoints", Json::array()}};
  for (const auto& row : rows) json["checkpoints"].push_back(json_of(row));
  context.out << json_line(json);
  return status;
}

std::vector<std::string> words_of(const Row& row) {
  const std::string state(state_of(row));
  if (!row.manifest) return {str(row.entry.step), "-", "-", "-", "-", "-", state, ""};
  const auto& metric = row.manifest->metric;
  return {str(row.entry.step),
          short_time(row.manifest->time),
          units::format_bytes(row.manifest->total_bytes()),
          str(row.manifest->tensors.size()),
          str(row.manifest->world_size),
          metric ? fmt::format("{} {:.6g}", metric->name, metric->value) : "-",
          state,
          text::join(row.names, ", ")};
}

storage::Keep keep_of(const Arguments& arguments) {
  const auto last = arguments.number("--keep-last", 1);
  const auto best = arguments.number("--keep-best", 0);
  const auto every = arguments.number("--keep-every", 1);
  if (!last && !best && !every) {
    throw Error(Fault::config,
                "checkpoint prune: say what to keep: --keep-last N, --keep-best N or "
                "--keep-every N; --dry-run shows what would go");
  }
  return {
      .last = last.value_or(1), .best = best.value_or(0), .every = every.value_or(0)};
}

}  // namespace

int list_checkpoints(const Arguments& arguments, Context& context) {
  const auto place = checkpoint_place(arguments, context, arguments.operand("WHERE"));
  const auto rows = rows_in(place, storage::Depth::quick);
  if (arguments.has("--json")) return print_json(rows, context, kExitOk);
  if (rows.empty()) {
    context.err << "no checkpoints in '" << printable(place.checkpoints.string())
                << "'; checkpoint.every=N saves one every N steps\n";
    return kExitOk;
  }
  std::vector<std::vector<std::string>> table{
      {"STEP", "TIME", "SIZE", "TENSORS", "RANKS", "METRIC", "STATE", "NAMES"}};
  for (const auto& row : rows) {
    table.push_back(words_of(row));
    if (!row.problem.empty()) context.err << printable(row.problem) << "\n";
  }
  context.out << printable(text::table(table, {0, 2, 3, 4}));
  return kExitOk;
}

int verify_checkpoints(const Arguments& arguments, Context& context) {
  auto place = checkpoint_place(arguments, context, arguments.operand("WHERE"));
  if (arguments.has("--step")) {
    place.single = one_checkpoint(place, {arguments.value("--step")}, context);
  }
  const auto rows = rows_in(place, storage::Depth::full);
  int status = kExitOk;
  for (const auto& row : rows) status = row.problem.empty() ? status : kExitFailed;
  if (arguments.has("--json")) return print_json(rows, context, status);
  for (const auto& row : rows) {
    const auto path = printable(row.entry.path.string());
    if (row.problem.empty()) {
      context.out << fmt::format("{}  {}  {} in {} tensors\n",
                                 toned("good", Tone::green, context.color_out), path,
                                 units::format_bytes(row.manifest->total_bytes()),
                                 row.manifest->tensors.size());
    } else {
      context.out << fmt::format("{}  {}\n",
                                 toned("bad ", Tone::red, context.color_out),
                                 printable(row.problem));
    }
  }
  if (rows.empty()) context.err << "there are no checkpoints\n";
  return status;
}

int prune_checkpoints(const Arguments& arguments, Context& context) {
  const auto keep = keep_of(arguments);
  const auto place = checkpoint_place(arguments, context, arguments.operand("WHERE"));
  if (place.single) {
    throw Error(Fault::config, "checkpoint prune: '", place.single->string(),
                "' is one checkpoint; name a run or the directory that holds it");
  }
  const bool dry = arguments.has("--dry-run");
  const auto pruned = storage::prune(storage::FileSystem::real(), place.checkpoints,
                                     {.keep = keep, .dry_run = dry});
  for (const auto& bad : pruned.damaged) {
    context.err << printable(str("not counted by any --keep option: ", bad.reason))
                << "\n";
  }
  for (const auto& unread : pruned.unreadable) {
    context.err
        << printable(
               str("could not be read; kept, and not counted by any --keep option: ",
                   unread.path.string(), ": ", unread.reason))
        << "\n";
  }
  if (arguments.has("--json")) {
    Json json = {{"dry_run", dry}, {"freed_bytes", pruned.freed_bytes}};
    for (const auto* list : {&pruned.removed, &pruned.kept}) {
      auto& names = json[list == &pruned.removed ? "removed" : "kept"] = Json::array();
      for (const auto& path : *list) names.push_back(path.string());
    }
    json["unreadable"] = Json::array();
    for (const auto& unread : pruned.unreadable) {
      json["unreadable"].push_back(
          {{"path", unread.path.string()}, {"reason", unread.reason}});
    }
    context.out << json_line(json);
    return kExitOk;
  }
  for (const auto& path : pruned.removed) {
    context.out << (dry ? "would remove " : "removed ") << printable(path.string())
                << "\n";
  }
  context.out << fmt::format("{} kept, {} {}, {}\n", pruned.kept.size(),
                             pruned.removed.size(), dry ? "would go" : "removed",
                             units::format_bytes(pruned.freed_bytes));
  return kExitOk;
}

}  // namespace lockstep::cli
