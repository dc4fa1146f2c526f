#pragma once

#include <cerrno>

#include "lockstep/base/error.h"

namespace lockstep::files {

// The error that files::fail() throws: a system call failed and gave its errno. Content
// that is not what it should be is another Error.
class SystemError : public Error {
 public:
  template <typename... Parts>
  explicit SystemError(int code, const Parts&... parts)
      : Error(Fault::io, parts...), code_(code) {}

  int code() const noexcept { return code_; }  // from errno.h

 private:
  int code_;
};

// Returns whether a file that could not be read may be intact all the same: a disk or a
// server that does not answer, missing permissions, a limit of this process. A file
// that is not there is no such case.
inline bool may_be_readable_later(const Error& error) noexcept {
  const auto* refused = dynamic_cast<const SystemError*>(&error);
  if (refused == nullptr) return false;
  return refused->code() != ENOENT && refused->code() != ENOTDIR &&
         refused->code() != ELOOP;
}

}  // namespace lockstep::files
