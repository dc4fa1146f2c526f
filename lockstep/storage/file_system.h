#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

// The operations that a checkpoint needs of a disk. Reading is not here: it needs no
// seam, because a test of a crash reads what the crash left.
namespace lockstep::storage {

using Path = std::filesystem::path;
using Bytes = std::span<const std::byte>;

// A file that is being written. All errors are Fault::io with path and remedy.
//
// Threads:  any number write at once, to different places; for the rest one at a time.
// Lifetime: the destructor closes without syncing and never throws.
class OutputFile {
 public:
  virtual ~OutputFile() = default;

  // Makes sure that there is room for `bytes` now, so that a full disk is met before
  // the work.
  virtual void reserve(std::int64_t bytes) = 0;
  // Writes all of `bytes` at that offset of the file.
  virtual void write(std::int64_t offset, Bytes bytes) = 0;
  virtual void truncate(std::int64_t bytes) = 0;
  virtual void sync() = 0;
  virtual void close() = 0;
};

// A power of two that addresses, offsets and lengths of direct writes are multiples of.
inline constexpr std::int64_t kDirectAlignment = 4096;

enum class Caching {
  through,  // the page cache
  direct    // past it, where the file system can; every write is aligned
};

// The operations of which each may be the last one before a crash.
//
// Threads: any number.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Makes a new file; one that exists is an error.
  virtual std::unique_ptr<OutputFile> create(const Path& path, Caching caching) = 0;
  // Returns false if it exists. The parent must exist.
  virtual bool make_directory(const Path& path) = 0;
  // Replaces files and links at `to`.
  virtual void rename(const Path& from, const Path& to) = 0;
  // Swaps two names in one step; false where the file system can not.
  virtual bool exchange(const Path& a, const Path& b) = 0;
  // Removes a file, a link or an empty directory.
  virtual void remove(const Path& path) = 0;
  virtual void link(const std::string& target, const Path& path) = 0;
  // Makes the creations, renames and removals in it durable.
  virtual void sync_directory(const Path& path) = 0;

  // Returns the real file system.
  static FileSystem& real();
};

// Removes a directory and all that is in it, file by file. Links are not followed.
void remove_tree(FileSystem& files, const Path& path);

// Returns the names in a directory, sorted; none if it does not exist.
std::vector<std::string> names_in(const Path& directory);

// Writes and syncs a small file.
void write_file(FileSystem& files, const Path& path, std::string_view content);

}  // namespace lockstep::storage
