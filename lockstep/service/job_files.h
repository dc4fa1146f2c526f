#pragma once

#include <optional>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/service/attempt.h"

// How a server reads what jobs have written. A job may run as another Unix user, who
// can put into its folder what it likes: links to files that only the server may read,
// pipes that nobody writes to, files that grow or shrink. So names are looked up one by
// one from the job's folder on, which is the server's to make, and no link is followed;
// nothing is opened for good but a regular file of the folder's own user; and nothing
// of it is ever mapped into memory.
namespace lockstep::service {

// A file of a job, open for reading, or nothing.
class JobFile {
 public:
  // `name` is relative to the folder and has no "..".
  JobFile(const JobFolder& folder, const files::Path& name);

  explicit operator bool() const noexcept { return static_cast<bool>(file_); }
  int get() const noexcept { return file_.get(); }
  files::Descriptor take() { return std::move(file_); }

  // Leads to the open file and to no other, as long as this object lives; where there
  // is no such file it leads to none.
  files::Path path() const;

 private:
  files::Descriptor file_;
};

// The same for a folder: paths of its entries, and no more, may be made from path().
class JobSubfolder {
 public:
  JobSubfolder(const JobFolder& folder, const files::Path& name);

  explicit operator bool() const noexcept { return static_cast<bool>(folder_); }
  files::Path path() const;

 private:
  files::Descriptor folder_;
};

// The run of a job, as a folder that what reads run directories may be given: where it
// belongs to another Unix user, one of our own with links to what was opened above.
class ReadableRun {
 public:
  explicit ReadableRun(const JobFolder& folder);

  const files::Path& path() const noexcept { return path_; }

 private:
  files::Path path_;
  std::vector<JobFile> files_;
  std::optional<files::TemporaryDirectory> links_;
};

// Returns the user that the folder of a job belongs to; nothing if it is not there.
std::optional<unsigned> owner_of(const JobFolder& folder);

}  // namespace lockstep::service
