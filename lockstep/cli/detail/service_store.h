#pragma once

#include <filesystem>

#include "lockstep/cli/command.h"
#include "lockstep/config/server.h"

namespace lockstep::cli {

// Returns the folder of the service of this machine, made if it is not there:
// --config, or the usual one.
std::filesystem::path service_folder(const Arguments& arguments,
                                     const Context& context);

// --config, for commands that need the server's files.
Option server_config_option();

}  // namespace lockstep::cli
