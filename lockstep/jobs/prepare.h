#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/load.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/caller.h"
#include "lockstep/planner/plan.h"
#include "lockstep/storage/catalog.h"

namespace lockstep::jobs {

// A recipe that was planned for this machine, with what the plan was made from.
struct Prepared {
  hardware::Machine machine;
  planner::Knowledge knowledge;
  planner::Plan plan;
};

// Settles the model (settle_model.h), looks at the machine and plans. `chooses` is
// false where the recipe is to be taken literally: what it leaves `auto` is refused
// then. Throws as planner::resolve() does.
Prepared prepare(const config::Loaded& recipe, bool chooses, const Caller& caller);

// Throws Fault::io for a folder in which every checkpoint is damaged, with the reason
// of each; `what` is what was requested.
[[noreturn]] void refuse_damaged(std::string_view what,
                                 const std::filesystem::path& checkpoints,
                                 const std::vector<storage::Skipped>& damaged);

// Refuses, with Fault::config, a checkpoint.resume that names no checkpoint, and no run
// or folder that has one. The worker looks at every byte of it.
void check_resume(const std::string& resume);

}  // namespace lockstep::jobs
