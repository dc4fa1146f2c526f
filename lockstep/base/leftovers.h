#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/files.h"

// A killed process leaves files behind: the temporaries beside a file that was being
// replaced, and hidden or temporary directories. Their names end with the mark of the
// process that made them, so that the next one can tell whose they are.
namespace lockstep::files {

// Returns this host and process for the name of a temporary: "1b2c3d4e-4711".
std::string owner_mark();

// Removes abandoned temporaries from `directory`: those whose process is gone on this
// host, or, of another host, that were not touched for a day. Never fails: a file that
// can not be looked at or removed stays.
void sweep_leftovers(const Path& directory) noexcept;

}  // namespace lockstep::files
