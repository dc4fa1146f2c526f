#include "lockstep/service/as_owner.h"

#include <cstring>

#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::service {

// The C library's setgroups() is for the whole process; the kernel's is for a thread.
AsOwner::AsOwner(const files::Path& folder) {
  struct stat info {};
  if (::lstat(folder.c_str(), &info) != 0 || info.st_uid == acting_user()) return;
  const gid_t group = info.st_gid;
  if (::syscall(SYS_setgroups, 1UL, &group) != 0) {
    throw Error(Fault::io, "job: its folder belongs to Unix user ", info.st_uid,
                "; only a server that runs as root can work for others");
  }
  changed_ = true;
  ::setfsgid(info.st_gid);
  ::setfsuid(info.st_uid);
}

AsOwner::~AsOwner() {
  if (!changed_) return;
  ::setfsuid(::geteuid());
  ::setfsgid(::getegid());
  // A server that can do this is root, which needs no other groups.
  const gid_t group = ::getegid();
  ::syscall(SYS_setgroups, 1UL, &group);
}

uid_t acting_user() {
  // One that can not be: nothing is changed, and the present one returned.
  return static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1)));
}

}  // namespace lockstep::service
