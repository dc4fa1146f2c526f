#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <sys/stat.h>

#include "lockstep/base/files.h"
#include "lockstep/run/run_lock.h"

// The file `lock` of a run directory: its contents, its age, and its holder.
namespace lockstep::run {

Path lock_file(const Path& run);

std::string boot_id();  // of this machine's kernel; "" if it can not be told

// Opens it to write and to lock; `flags` are those of open(2) besides. Throws
// Fault::io; a file that is not regular is refused.
files::Descriptor open_lock(const Path& path, int flags);

// Opens it to read. Does not wait for a pipe of that name without a writer.
files::Descriptor look_at(const Path& path);

// Returns whether the path still leads to the open file.
bool is_in_place(int fd, const Path& path);

// Returns nothing if the file is empty, torn or not ours: no holder is known.
std::optional<LockHolder> holder_in(int fd);

// The text of the file: who holds the lock, and how often that was said again.
struct LockText {
  const LockHolder& holder;
  std::int64_t renewed = 0;
};

void write_holder(int fd, const LockText& content, const Path& path);

std::chrono::nanoseconds changed_at(const struct stat& file);

// Returns the time since it was written, by the clock of the run's file system.
std::chrono::milliseconds age(int fd, const Path& run);

enum class Flock { held, taken, unknown };

// `kind` is LOCK_EX or LOCK_SH. Returns unknown if the file system has no such locks.
Flock try_flock(int fd, int kind);

// Does the same with LOCK_EX, but a process that only asks for its state (may_be_alive)
// is not taken for a holder: that is over in a moment.
Flock flock_to_keep(int fd);

}  // namespace lockstep::run
