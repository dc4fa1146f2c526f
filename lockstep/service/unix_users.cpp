#include "lockstep/service/unix_users.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/service/refusal.h"

namespace lockstep::service {
namespace {

constexpr const char* kEverybodyElse = "*";
// Others may pass through, to what they know the name of, and see nothing else.
constexpr mode_t kPassable = 0711;

std::vector<gid_t> groups_of(const std::string& name, gid_t first) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  while (::getgrouplist(name.c_str(), first, groups.data(), &count) < 0) {
    groups.resize(static_cast<std::size_t>(count));
  }
  groups.resize(static_cast<std::size_t>(count));
  return groups;
}

UnixUser find_unix_user(const std::string& name) {
  std::array<char, 16 << 10> room{};
  passwd entry{};
  passwd* found = nullptr;
  ::getpwnam_r(name.c_str(), &entry, room.data(), room.size(), &found);
  if (found == nullptr) {
    throw Error(Fault::config, "queue.unix_users: there is no Unix user '", name,
                "' on this machine; `getent passwd` lists them");
  }
  if (entry.pw_uid == 0) {
    throw Error(Fault::config, "queue.unix_users: jobs do not run as '", name,
                "', which may do everything; name another user");
  }
  return {.name = name,
          .uid = entry.pw_uid,
          .gid = entry.pw_gid,
          .groups = groups_of(name, entry.pw_gid),
          .home = entry.pw_dir};
}

void make_passable(const files::Path& folder) {
  if (::chmod(folder.c_str(), kPassable) != 0) files::fail("open", folder, errno);
}

// The folders above have to let others pass as well; they are not ours to change.
void check_way(const files::Path& state) {
  for (auto at = std::filesystem::absolute(state).parent_path();;
       at = at.parent_path()) {
    struct stat info {};
    if (::stat(at.c_str(), &info) == 0 && (info.st_mode & S_IXOTH) == 0) {
      throw Error(Fault::config, "queue.unix_users: no other user can enter '",
                  at.string(),
                  "', which store.dir is below; choose another store.dir, "
                  "such as /var/lib/lockstep, or chmod o+x that folder");
    }
    if (at == at.parent_path()) return;
  }
}

// Jobs of before were guarded by the folders above them.
void close_folders_of_jobs(const files::Path& jobs) {
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(jobs, ignored), end; it != end;
       it.increment(ignored)) {
    const files::Descriptor folder(
        ::open(it->path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (folder) ::fchmod(folder.get(), 0700);
  }
}

[[noreturn]] void refuse_folder(const JobFolder& folder, std::string_view why) {
  throw Error(Fault::config, "queue.unix_users: the folder of job ",
              folder.path().filename().string(), ' ', why,
              "; submit the job again, which makes a new one");
}

}  // namespace

UnixUser unix_user(uid_t uid) {
  std::array<char, 16 << 10> room{};
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(uid, &entry, room.data(), room.size(), &found);
  if (found != nullptr) return find_unix_user(entry.pw_name);
  throw Error(Fault::config, "queue.unix_users: there is no Unix user ", uid,
              " any more, whose folder a job has");
}

std::optional<UnixUser> unix_user_of(const config::QueueConfig& queue,
                                     const std::string& user) {
  if (queue.unix_users.empty()) return std::nullopt;
  auto found = queue.unix_users.find(user);
  if (found == queue.unix_users.end()) found = queue.unix_users.find(kEverybodyElse);
  if (found == queue.unix_users.end()) {
    throw Refusal(Refused::not_allowed, "jobs of '", user,
                  "' have no Unix user to run as; whoever runs the server names one "
                  "in queue.unix_users");
  }
  return find_unix_user(found->second);
}

void prepare_unix_users(const config::QueueConfig& queue, const files::Path& state) {
  if (queue.unix_users.empty()) return;
  if (queue.executor == config::Executor::slurm) {
    throw Error(Fault::config,
                "queue.unix_users: Slurm runs jobs as whoever submits "
                "them, which is the server; leave it out, or set "
                "queue.executor=local");
  }
  if (::geteuid() != 0) {
    throw Error(Fault::config,
                "queue.unix_users: only a server that root starts can "
                "run jobs as other users; leave it out, or start the server as root");
  }
  for (const auto& [user, name] : queue.unix_users) find_unix_user(name);
  check_way(state);
  close_folders_of_jobs(state / "jobs");
  for (const auto& folder : {state, state / "jobs", state / "files"}) {
    make_passable(folder);
  }
}

void make_job_folder(const JobFolder& folder, const std::optional<UnixUser>& user) {
  const bool is_new = ::mkdir(folder.path().c_str(), 0700) == 0;
  if (!is_new && errno != EEXIST) files::fail("make", folder.path(), errno);
  const files::Descriptor place(
      ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!place || ::fstat(place.get(), &info) != 0) {
    files::fail("open", folder.path(), errno);
  }
  const auto self = ::geteuid();
  const auto owner = user ? user->uid : self;
  if (info.st_uid == owner) return;
  // Without a user of its own it would be ours in a folder that another can change.
  if (!user && self != 0) return;
  std::error_code ignored;
  if (info.st_uid != self) refuse_folder(folder, "belongs to another Unix user by now");
  if (std::filesystem::exists(folder.path() / "attempts", ignored)) {
    refuse_folder(folder, "is the server's, since it has run as that");
  }
  if (::fchown(place.get(), user->uid, user->gid) != 0) {
    files::fail("give away", folder.path(), errno);
  }
}

void give_file(const files::Path& file, const UnixUser& user) {
  const files::Descriptor open(
      ::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!open || ::fstat(open.get(), &info) != 0) files::fail("open", file, errno);
  if (info.st_uid != user.uid) {
    if (info.st_uid != ::geteuid()) {
      throw Refusal(Refused::conflict, file.parent_path().filename().string(),
                    " was used by jobs of another Unix user; upload it again");
    }
    if (::fchown(open.get(), user.uid, user.gid) != 0) {
      files::fail("give away", file, errno);
    }
  }
  ::fchmod(open.get(), 0400);
  make_passable(file.parent_path());
}

}  // namespace lockstep::service
