#include <ostream>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/cli/detail/checkpoint.h"
#include "lockstep/cli/detail/output.h"
#include "lockstep/cli/detail/run_view.h"
#include "lockstep/jobs/prepare.h"
#include "lockstep/storage/publish.h"

namespace lockstep::cli {
namespace {

using Path = std::filesystem::path;

bool is_there(const Path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Path by_step(const Path& checkpoints, const std::string& step) {
  if (step == storage::kBest || step == storage::kLast) {
    if (const auto found = storage::named(checkpoints, step)) return *found;
    throw Error(Fault::config, "checkpoint: none of '", checkpoints.string(),
                "' is the ", step,
                step == storage::kBest ? "; they have no metric" : "");
  }
  const auto number = text::to_integer(step);
  const auto path = storage::step_directory(checkpoints, number.value_or(-1));
  if (number && is_there(path)) return path;
  std::vector<std::string> known;
  for (const auto& entry : storage::list_steps(checkpoints)) {
    known.push_back(str(entry.step));
  }
  throw Error(Fault::config, "checkpoint: there is no step '", step, "' in '",
              checkpoints.string(), "'; it has ",
              known.empty() ? "no checkpoints" : text::join(known, ", "));
}

}  // namespace

CheckpointPlace checkpoint_place(const Arguments& arguments, const Context& context,
                                 const std::optional<std::string>& word) {
  const auto directory = arguments.value("--dir").value_or(default_run_dir(context));
  if (word && is_there(Path(*word) / storage::kManifestName)) {
    return {.checkpoints = {}, .single = Path(*word)};
  }
  const bool is_run = !word || is_there(Path(*word) / "run.json") ||
                      is_there(Path(directory) / *word / "run.json") ||
                      !is_there(*word);
  if (is_run) {
    return {.checkpoints = jobs::find_run("checkpoint", word, directory).checkpoints(),
            .single = {}};
  }
  if (!storage::list_steps(*word).empty()) return {.checkpoints = *word, .single = {}};
  throw Error(Fault::config, "checkpoint: '", *word,
              "' is neither a run, nor a checkpoint, nor a directory that holds some");
}

Path one_checkpoint(const CheckpointPlace& place, const CheckpointChoice& choice,
                    Context& context) {
  const auto& [step, depth] = choice;
  if (place.single) {
    if (!step) return *place.single;
    throw Error(Fault::config, "checkpoint: '", place.single->string(),
                "' is one checkpoint; --step is for a run");
  }
  if (step) return by_step(place.checkpoints, *step);
  const auto found = storage::newest_valid(place.checkpoints, depth);
  if (!found.path && !found.skipped.empty()) {
    jobs::refuse_damaged("checkpoint", place.checkpoints, found.skipped);
  }
  for (const auto& skipped : found.skipped) {
    context.err << printable(str("skipped ", skipped.reason)) << "\n";
  }
  if (found.path) return *found.path;
  throw Error(Fault::config, "checkpoint: there is no valid checkpoint in '",
              place.checkpoints.string(), "'");
}

}  // namespace lockstep::cli
