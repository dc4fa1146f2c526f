#pragma once

#include <optional>

#include <sys/types.h>

#include "lockstep/base/files.h"

namespace lockstep::service {

// For as long as it lives this thread opens, makes and reads files as the owner of a
// folder would, and may do no more: what lies in the folder of a job that runs as
// another Unix user is that user's, and so is every link in it. Does nothing where the
// folder is ours, or not there.
//
// Threads: only the one that made it is changed, and has to end it.
class AsOwner {
 public:
  // Throws Fault::io if it is another's and this process is not root's.
  explicit AsOwner(const files::Path& folder);
  ~AsOwner();
  AsOwner(const AsOwner&) = delete;
  AsOwner& operator=(const AsOwner&) = delete;

 private:
  bool changed_ = false;
};

// Returns the user as whom this thread opens files.
uid_t acting_user();

}  // namespace lockstep::service
