#pragma once

#include <filesystem>

#include "lockstep/config/load.h"
#include "lockstep/jobs/caller.h"

namespace lockstep::jobs {

// Returns the folder of the models that recipes name: models.dir, else
// $XDG_DATA_HOME/lockstep/models, else ~/.local/share/lockstep/models. Throws
// Fault::config where none of these is known.
std::filesystem::path models_directory(const config::ModelsConfig& config,
                                       const Caller& caller);

// Returns the recipe with the sizes of the weights that it begins with, and tells the
// caller about them; as hf::settle() does. A plan is made of this one.
config::Loaded settle_model(config::Loaded wanted, const Caller& caller);

}  // namespace lockstep::jobs
