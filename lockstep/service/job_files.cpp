#include "lockstep/service/job_files.h"

#include <array>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::service {
namespace {

// What of a run is read as a whole.
constexpr std::array kRunFiles{"run.json",      "config.yaml", "events.jsonl",
                               "metrics.jsonl", "heartbeat",   "lock"};

// How the last name of a path is opened.
constexpr int kAsFile = O_RDONLY | O_NONBLOCK;
constexpr int kAsFolder = O_RDONLY | O_DIRECTORY;

struct Entry {
  files::Descriptor file;
  struct stat info {};
};

// Another's things in a folder of that user only: a hard link is none of them.
bool is_trusted(const struct stat& info, uid_t owner) {
  return owner == ::geteuid() || info.st_uid == owner;
}

std::optional<Entry> open_entry(const JobFolder& folder, const files::Path& name,
                                int how) {
  // The folder stands in one that only the server writes to.
  files::Descriptor at(::open(folder.path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!at || ::fstat(at.get(), &info) != 0) return std::nullopt;
  const auto owner = info.st_uid;
  for (auto part = name.begin(); part != name.end(); ++part) {
    if (*part == ".." || part->has_root_path()) return std::nullopt;
    const bool is_last = std::next(part) == name.end();
    const int flags = is_last ? how : O_PATH | O_DIRECTORY;
    at = files::Descriptor(
        ::openat(at.get(), part->c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
    if (!at || ::fstat(at.get(), &info) != 0 || !is_trusted(info, owner)) {
      return std::nullopt;
    }
  }
  return Entry{std::move(at), info};
}

files::Path path_of(const files::Descriptor& file) {
  // "" is no file: readers take it for one that is not there.
  return file ? files::Path(str("/proc/self/fd/", file.get())) : files::Path();
}

}  // namespace

JobFile::JobFile(const JobFolder& folder, const files::Path& name) {
  auto entry = open_entry(folder, name, kAsFile);
  if (entry && S_ISREG(entry->info.st_mode)) file_ = std::move(entry->file);
}

files::Path JobFile::path() const {
  return path_of(file_);
}

JobSubfolder::JobSubfolder(const JobFolder& folder, const files::Path& name) {
  auto entry = open_entry(folder, name, kAsFolder);
  if (entry) folder_ = std::move(entry->file);
}

files::Path JobSubfolder::path() const {
  return path_of(folder_);
}

ReadableRun::ReadableRun(const JobFolder& folder) : path_(folder.run()) {
  const auto owner = owner_of(folder);
  if (!owner || *owner == ::geteuid()) return;
  links_.emplace();
  path_ = links_->path();
  for (const auto* name : kRunFiles) {
    JobFile file(folder, files::Path("run") / name);
    if (!file) continue;
    std::error_code error;
    std::filesystem::create_symlink(file.path(), path_ / name, error);
    if (error) files::fail("link", path_ / name, error.value());
    files_.push_back(std::move(file));
  }
}

std::optional<unsigned> owner_of(const JobFolder& folder) {
  struct stat info {};
  if (::stat(folder.path().c_str(), &info) != 0) return std::nullopt;
  return info.st_uid;
}

}  // namespace lockstep::service
