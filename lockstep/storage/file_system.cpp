#include "lockstep/storage/file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::storage {
namespace {

class RealFile : public OutputFile {
 public:
  RealFile(Path path, Caching caching) : path_(std::move(path)) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    const bool direct = caching == Caching::direct;
    direct_ = direct;
    file_ = files::Descriptor(
        ::open(path_.c_str(), kFlags | (direct ? O_DIRECT : 0), 0644));
    if (!file_ && direct && errno == EINVAL) {
      // The file system knows no direct writes; the refused open has left a file.
      ::unlink(path_.c_str());
      file_ = files::Descriptor(::open(path_.c_str(), kFlags, 0644));
    }
    if (!file_) files::fail("create", path_, errno);
  }

  // Not fallocate(): direct writes into room that it has taken were half as fast.
  void reserve(std::int64_t bytes) override {
    struct statvfs info {};
    if (::fstatvfs(file_.get(), &info) != 0 || info.f_frsize == 0) return;
    const auto blocks = static_cast<std::uint64_t>(bytes) / info.f_frsize;
    if (info.f_blocks > 0 && blocks > info.f_bavail) {
      files::fail("find room for", path_, ENOSPC);
    }
  }

  void write(std::int64_t offset, Bytes bytes) override {
    bool was_refused = false;
    while (!bytes.empty()) {
      const auto done = ::pwrite(file_.get(), bytes.data(), bytes.size(), offset);
      if (done < 0 && errno == EINTR) continue;
      if (done < 0 && errno == EINVAL && direct_ && !was_refused) {
        was_refused = true;
        leave_direct();
        continue;
      }
      if (done <= 0) files::fail("write", path_, done < 0 ? errno : ENOSPC);
      offset += done;
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
  }

  void truncate(std::int64_t bytes) override {
    if (::ftruncate(file_.get(), bytes) != 0) files::fail("truncate", path_, errno);
  }

  void sync() override {
    if (::fsync(file_.get()) != 0) files::fail("sync", path_, errno);
  }

  void close() override {
    // Network file systems report late write errors here.
    if (::close(file_.release()) != 0 && errno != EINTR) {
      files::fail("close", path_, errno);
    }
  }

 private:
  // Some file systems take O_DIRECT and refuse the writes.
  void leave_direct() const {
    const int flags = ::fcntl(file_.get(), F_GETFL);
    if (flags >= 0) ::fcntl(file_.get(), F_SETFL, flags & ~O_DIRECT);
  }

  Path path_;
  bool direct_ = false;
  files::Descriptor file_;
};

class RealFileSystem : public FileSystem {
 public:
  std::unique_ptr<OutputFile> create(const Path& path, Caching caching) override {
    return std::make_unique<RealFile>(path, caching);
  }

  bool make_directory(const Path& path) override {
    if (::mkdir(path.c_str(), 0755) == 0) return true;
    if (errno == EEXIST) return false;
    files::fail("make directory", path, errno);
  }

  void rename(const Path& from, const Path& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) files::fail("rename to", to, errno);
  }

  bool exchange(const Path& a, const Path& b) override {
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) {
      return true;
    }
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return false;
    files::fail("rename to", b, errno);
  }

  void remove(const Path& path) override {
    if (::remove(path.c_str()) != 0) files::fail("remove", path, errno);
  }

  void link(const std::string& target, const Path& path) override {
    if (::symlink(target.c_str(), path.c_str()) != 0) files::fail("link", path, errno);
  }

  void sync_directory(const Path& path) override { files::sync_directory(path); }
};

}  // namespace

FileSystem& FileSystem::real() {
  static RealFileSystem instance;  // it has no state
  return instance;
}

void remove_tree(FileSystem& files, const Path& path) {
  std::error_code ignored;
  const auto status = std::filesystem::symlink_status(path, ignored);
  if (!std::filesystem::exists(status)) return;
  if (std::filesystem::is_directory(status)) {
    for (const auto& name : names_in(path)) remove_tree(files, path / name);
  }
  files.remove(path);
}

std::vector<std::string> names_in(const Path& directory) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator at(directory, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  // Below a file there is no directory, either.
  if (error && error != std::errc::no_such_file_or_directory &&
      error != std::errc::not_a_directory) {
    files::fail("list", directory, error.value());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void write_file(FileSystem& files, const Path& path, std::string_view content) {
  const auto file = files.create(path, Caching::through);
  file->write(0, std::as_bytes(std::span(content)));
  file->sync();
  file->close();
}

}  // namespace lockstep::storage
