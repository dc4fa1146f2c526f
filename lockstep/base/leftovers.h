#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/files.h"

// What a process that was killed could not take away: the temporaries beside a file
// that was being replaced, and hidden or temporary directories. Their names end with
// the mark of the process that made them, so that the next one can tell whose they are.
namespace lockstep::files {

// "1b2c3d4e-4711": this host and this process, for the name of a temporary.
std::string owner_mark();

// Removes from `directory` what is nobody's any more: a temporary whose process is gone
// on this host, or, of another host, that nobody has touched for a day. Never fails:
// what can not be looked at or removed stays.
void sweep_leftovers(const Path& directory) noexcept;

}  // namespace lockstep::files
