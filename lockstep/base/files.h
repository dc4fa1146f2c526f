#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::files {

using Path = std::filesystem::path;

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  int release() noexcept;
  void reset() noexcept;

 private:
  int fd_ = -1;
};

// All errors are Fault::io and name the path, the reason and, where there is one, the
// remedy.

// Throws "cannot write '/x': No space left on device; free some space ...".
[[noreturn]] void fail(std::string_view what, const Path& path, int error);

// Returns the whole file; a directory, a missing file or one larger than `limit_bytes`
// is refused before anything is read. A pipe is read until its writers have closed it;
// one that has none is empty.
std::string read(const Path& path, std::int64_t limit_bytes);

// Returns the end of a file that may be large or growing: whole lines that fit into
// `limit_bytes`; "" if there is no such file.
std::string read_tail(const Path& path, std::int64_t limit_bytes);

// Returns the name that a file has to be renamed to in order to take the place of
// `path`: the path itself, or where its links lead, whether or not something is there.
// Refuses anything but a regular file, since a rename would put an end to a device, a
// pipe or a socket.
Path replaceable(const Path& path);

// `path` holds either what it held before or all of `content`, whatever happens:
// written beside it, fsynced, renamed over it, the directory fsynced. Nothing is left
// behind when it fails. A link stays one, and its target is replaced. A character
// device, and a pipe that a process reads, are written to as they are; directories,
// sockets and block devices are refused.
void write_atomically(const Path& path, std::string_view content);

// Writes content that is produced piece by piece: `write` gets a descriptor.
void write_atomically(const Path& path, const std::function<void(int fd)>& write);

// Makes a directory and its parents; returns false if the directory exists already.
bool make_new_directory(const Path& path);

void sync_directory(const Path& path);

// Writes all bytes or throws.
void write_all(int fd, std::string_view bytes, const Path& path_for_errors);

// Appends whole lines to a file. A line is one write(2), so lines of several processes
// do not mix and a reader sees a torn line only after a crash in the middle of it.
class LineWriter {
 public:
  // Opens the file for appending; a torn last line, left by a crash, is ended first.
  explicit LineWriter(const Path& path);

  void write(std::string_view line);  // without its newline
  void sync();                        // the lines so far survive a power cut

 private:
  Path path_;
  Descriptor file_;
};

// A fresh directory, removed with all that is in it by the destructor.
class TemporaryDirectory {
 public:
  TemporaryDirectory();  // in the system's directory for temporary files
  explicit TemporaryDirectory(const Path& parent);
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const Path& path() const noexcept { return path_; }

 private:
  Path path_;
};

}  // namespace lockstep::files
