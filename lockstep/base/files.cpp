#include "lockstep/base/files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/leftovers.h"
#include "lockstep/base/system_error.h"
#include "lockstep/base/units.h"

namespace lockstep::files {
namespace {

std::string remedy_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "; free some space or choose another place";
    case EFBIG:
      return "; raise the limit of file sizes (ulimit -f) or choose another place";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; check the permissions or choose another place";
    case EMFILE:
    case ENFILE:
      return "; raise the limit of open files (ulimit -n)";
    default:
      return "";
  }
}

Descriptor open_or_fail(const Path& path, int flags, std::string_view what) {
  Descriptor file(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (!file) fail(what, path, errno);
  return file;
}

// Returns the file type that `path` leads to; 0 if there is nothing.
mode_t kind_of(const Path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return info.st_mode & S_IFMT;
  if (errno == ENOENT) return 0;
  fail("write", path, errno);
}

std::string_view name_of_kind(mode_t kind) {
  switch (kind) {
    case S_IFDIR:
      return "a directory";
    case S_IFIFO:
      return "a pipe";
    case S_IFSOCK:
      return "a socket";
    case S_IFCHR:
    case S_IFBLK:
      return "a device";
    default:
      return "not a regular file";
  }
}

[[noreturn]] void refuse_kind(const Path& path, mode_t kind) {
  throw Error(Fault::io, "cannot write '", path.string(), "': it is ",
              name_of_kind(kind),
              "; name a regular file, or one that is not there yet");
}

// Returns the path that links lead to, also if their target does not exist.
Path follow_links(const Path& path) {
  constexpr int kMostLinks = 40;  // the kernel's own limit
  auto target = path;
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code error;
    const auto next = std::filesystem::read_symlink(target, error);
    if (error) return target;
    target = next.is_absolute() ? next : target.parent_path() / next;
  }
  fail("write", path, ELOOP);
}

// A stream that a shell has opened for us, perhaps to append to it, is not ours to
// replace.
bool names_a_stream(const Path& path) {
  const auto text = path.string();
  return text == "/dev/stdout" || text == "/dev/stderr" ||
         text.starts_with("/dev/fd/") || text.starts_with("/proc/self/fd/");
}

// Writes in place to a file that can not be replaced.
void write_through(const Path& path, const std::function<void(int fd)>& write) {
  // Opening a pipe that nobody reads would wait for a reader, perhaps for ever.
  const int how = names_a_stream(path) ? O_APPEND : O_TRUNC;
  Descriptor file(::open(path.c_str(), O_WRONLY | how | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENXIO) {
    throw Error(Fault::io, "cannot write '", path.string(),
                "': it is a pipe that nobody reads; start its reader first");
  }
  if (!file) fail("write", path, errno);
  if (::fcntl(file.get(), F_SETFL, 0) != 0) fail("write", path, errno);
  write(file.get());
  // Devices and pipes have nothing to sync.
  if (::fsync(file.get()) != 0 && errno != EINVAL) fail("sync", path, errno);
}

void wait_until_readable(int fd) {
  pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
  ::poll(&readable, 1, -1);
}

}  // namespace

void fail(std::string_view what, const Path& path, int error) {
  throw SystemError(error, "cannot ", what, " '", path.string(),
                    "': ", std::strerror(error), remedy_for(error));
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int Descriptor::release() noexcept {
  return std::exchange(fd_, -1);
}

void Descriptor::reset() noexcept {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string read(const Path& path, std::int64_t limit_bytes) {
  const auto file = open_or_fail(path, O_RDONLY | O_NONBLOCK, "read");
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) fail("read", path, errno);
  if (S_ISDIR(info.st_mode)) {
    throw Error(Fault::io, "cannot read '", path.string(),
                "': it is a directory, a file was expected");
  }
  if (info.st_size > limit_bytes) {
    throw Error(Fault::io, "cannot read '", path.string(), "': it has ",
                units::format_bytes(info.st_size), ", the limit for such a file is ",
                units::format_bytes(limit_bytes));
  }
  std::string content;
  char buffer[1 << 16];
  while (true) {
    const auto got = ::read(file.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {  // a pipe whose writer has not written yet
      wait_until_readable(file.get());
      continue;
    }
    if (got < 0) fail("read", path, errno);
    if (got == 0) return content;
    content.append(buffer, static_cast<std::size_t>(got));
    // Files of /proc and pipes say size 0: the limit counts the bytes that arrive, too.
    if (static_cast<std::int64_t>(content.size()) > limit_bytes) {
      throw Error(Fault::io, "cannot read '", path.string(), "': more than ",
                  units::format_bytes(limit_bytes), ", the limit for such a file");
    }
  }
}

std::string read_tail(const Path& path, std::int64_t limit_bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT) return "";
  if (!file) fail("read", path, errno);
  const auto size = ::lseek(file.get(), 0, SEEK_END);
  if (size < 0) fail("read", path, errno);
  const auto begin = std::max<std::int64_t>(0, size - limit_bytes);
  std::string content(static_cast<std::size_t>(size - begin), '\0');
  const auto got = ::pread(file.get(), content.data(), content.size(), begin);
  if (got < 0) fail("read", path, errno);
  content.resize(static_cast<std::size_t>(got));
  if (begin == 0) return content;
  const auto first_end = content.find('\n');
  return first_end == std::string::npos ? "" : content.substr(first_end + 1);
}

void write_all(int fd, std::string_view bytes, const Path& path_for_errors) {
  while (!bytes.empty()) {
    const auto done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail("write", path_for_errors, errno);
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
}

void sync_directory(const Path& path) {
  const auto directory = open_or_fail(path, O_RDONLY | O_DIRECTORY, "open");
  if (::fsync(directory.get()) != 0 && errno != EINVAL) fail("sync", path, errno);
}

namespace {

// Six letters and digits, as mkstemp makes them.
std::string random_ending() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz012345";
  std::array<unsigned char, 6> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != ssize_t{bytes.size()}) return "";
  std::string ending = ".";
  for (const auto byte : bytes) ending += kLetters[byte % kLetters.size()];
  return ending;
}

// Opens a file that was not there, with the permissions that the umask leaves to any
// file: mkstemp's are its owner's only, and to widen them would pass by the umask.
Descriptor open_new(const std::function<std::string()>& next_name) {
  constexpr int kTries = 100;
  constexpr int kHow = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  for (int i = 0; i < kTries; ++i) {
    Descriptor file(::open(next_name().c_str(), kHow, 0644));
    if (file || errno != EEXIST) return file;
  }
  return {};
}

}  // namespace

void write_atomically(const Path& path, std::string_view content) {
  write_atomically(path, [&](int fd) { write_all(fd, content, path); });
}

Path replaceable(const Path& path) {
  const auto kind = kind_of(path);
  if (kind != 0 && kind != S_IFREG) refuse_kind(path, kind);
  return follow_links(path);
}

void write_atomically(const Path& path, const std::function<void(int fd)>& write) {
  const auto kind = kind_of(path);
  if (kind == S_IFCHR || kind == S_IFIFO) return write_through(path, write);
  const auto target = replaceable(path);
  // The links of /proc (/dev/stdout is one) may lead to a file that has no name any
  // more.
  std::error_code ignored;
  if (kind == S_IFREG && !std::filesystem::equivalent(path, target, ignored)) {
    return write_through(path, write);
  }
  if (names_a_stream(path)) return write_through(path, write);
  const Path directory = target.has_parent_path() ? target.parent_path() : Path(".");
  // A part of a long name is enough: the temporary's must not be too long for the disk.
  constexpr std::size_t kShown = 64;
  const auto name = target.filename().string().substr(0, kShown);
  std::string beside;
  const auto file = open_new([&] {
    return beside = (directory / str(".", name, ".", owner_mark(), random_ending()))
                        .string();
  });
  if (!file) fail("write", path, errno);
  try {
    write(file.get());
    if (::fsync(file.get()) != 0) fail("sync", path, errno);
    if (::rename(beside.c_str(), target.c_str()) != 0) fail("rename to", path, errno);
  } catch (...) {
    ::unlink(beside.c_str());
    throw;
  }
  sync_directory(directory);
}

bool make_new_directory(const Path& path) {
  if (path.has_parent_path()) {
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    if (error) fail("make directory", path.parent_path(), error.value());
  }
  if (::mkdir(path.c_str(), 0755) == 0) return true;
  if (errno == EEXIST) return false;
  fail("make directory", path, errno);
}

LineWriter::LineWriter(const Path& path)
    : path_(path), file_(open_or_fail(path, O_RDWR | O_CREAT | O_APPEND, "write")) {
  const auto is_torn = [&] {
    const auto size = ::lseek(file_.get(), 0, SEEK_END);
    char last = '\n';
    return size > 0 && ::pread(file_.get(), &last, 1, size - 1) == 1 && last != '\n';
  };
  // Another writer may be in the middle of its line: a write over the end of a page is
  // seen in two parts. That is over soon; a line torn by a crash stays torn.
  constexpr int kLooks = 1000;
  for (int look = 0; look < kLooks; ++look) {
    if (!is_torn()) return;
    std::this_thread::yield();
  }
  write_all(file_.get(), "\n", path_);
}

void LineWriter::write(std::string_view line) {
  std::string whole(line);
  whole += '\n';
  write_all(file_.get(), whole, path_);
}

void LineWriter::sync() {
  if (::fdatasync(file_.get()) != 0 && errno != EINVAL) fail("sync", path_, errno);
}

TemporaryDirectory::TemporaryDirectory()
    : TemporaryDirectory(std::filesystem::temp_directory_path()) {}

TemporaryDirectory::TemporaryDirectory(const Path& parent) {
  sweep_leftovers(parent);
  auto pattern = (parent / str("lockstep.", owner_mark(), ".XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr)
    fail("make a directory like", pattern, errno);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::files
