#pragma once

#include <filesystem>

#include "lockstep/cli/command.h"
#include "lockstep/hf/model_folders.h"

namespace lockstep::cli {

// Trains a small model from the texts of --corpus and adds it under its name, which
// says what is made. The same texts give the same weights on every machine.
hf::ModelFolder make_model(const Arguments& arguments, const Context& context,
                           const std::filesystem::path& models);

}  // namespace lockstep::cli
