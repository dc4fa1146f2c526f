#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <sys/stat.h>

#include "lockstep/base/files.h"
#include "lockstep/monitor/run_lock.h"

// The file `lock` of a run directory: what is in it, how old it is, who has it locked.
namespace lockstep::monitor {

Path lock_file(const Path& run);

std::string boot_id();  // of this machine's kernel; "" if it can not be told

// To write to it and to lock it; `flags`: those of open(2) besides. Fault::io; what is
// no regular file is refused.
files::Descriptor open_lock(const Path& path, int flags);

// For a look at it. A pipe of that name, which nobody writes to, is not waited for.
files::Descriptor look_at(const Path& path);

// Whether the path still leads to what is open.
bool is_in_place(int fd, const Path& path);

// Nothing if the file is empty, torn or not ours: nobody is known to hold it.
std::optional<LockHolder> holder_in(int fd);

void write_holder(int fd, const LockHolder& holder, std::int64_t renewed,
                  const Path& path);

std::chrono::nanoseconds changed_at(const struct stat& file);

// Since it was written, by the clock of the file system that the run is on.
std::chrono::milliseconds age(int fd, const Path& run);

enum class Flock { held, taken, unknown };

// `kind`: LOCK_EX or LOCK_SH. unknown: this file system has no such locks.
Flock try_flock(int fd, int kind);

// The same with LOCK_EX, but one who only asks whether somebody has it (may_be_alive)
// is not taken for somebody who has: that is over in a moment.
Flock flock_to_keep(int fd);

}  // namespace lockstep::monitor
