#pragma once

#include <string>

#include "lockstep/cli/command.h"

namespace lockstep::cli {

// Returns the manifest of a Kubernetes Job that trains a recipe, and of the ConfigMap
// that holds the recipe.
std::string kubernetes_manifest(const Arguments& arguments, const std::string& recipe);

}  // namespace lockstep::cli
