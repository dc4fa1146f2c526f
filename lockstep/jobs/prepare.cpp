#include "lockstep/jobs/prepare.h"

#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/jobs/knowledge.h"
#include "lockstep/jobs/settle_model.h"
#include "lockstep/jobs/state_directory.h"
#include "lockstep/storage/catalog.h"

namespace lockstep::jobs {

Prepared prepare(const config::Loaded& recipe, bool chooses, const Caller& caller) {
  const auto wanted = settle_model(recipe, caller);
  auto machine = known_machine(caller, wanted.config.run.dir);
  auto knowledge = gather_knowledge(wanted, machine, caller);
  auto plan = planner::resolve(wanted, machine, knowledge);
  if (!chooses) planner::refuse_auto(plan);
  return {std::move(machine), std::move(knowledge), std::move(plan)};
}

void refuse_damaged(std::string_view what, const std::filesystem::path& checkpoints,
                    const std::vector<storage::Skipped>& damaged) {
  std::string list;
  for (const auto& one : damaged) {
    list += str("\n  ", one.path.filename().string(), ": ", one.reason);
  }
  throw Error(Fault::io, what, ": none of the ", damaged.size(), " in '",
              checkpoints.string(), "' is valid:", list,
              "\n"
              "put back a copy of one, name a run that has a valid one, or train from "
              "the beginning (--resume never)");
}

void check_resume(const std::string& resume) {
  if (resume == "auto" || resume == "never") return;
  const std::filesystem::path path(resume);
  std::error_code ignored;
  if (std::filesystem::exists(path / storage::kManifestName, ignored)) return;
  for (const auto& folder : {path, path / "checkpoints"}) {
    if (storage::list_steps(folder).empty()) continue;
    const auto found = storage::newest_valid(folder, storage::Depth::quick);
    if (!found.path) refuse_damaged("checkpoint.resume", folder, found.skipped);
    return;
  }
  throw Error(Fault::config, "checkpoint.resume: '", resume,
              "' is not a checkpoint, and none is in it; `lockstep checkpoint list "
              "RUN` shows those of a run");
}

}  // namespace lockstep::jobs
