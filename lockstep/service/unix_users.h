#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "lockstep/base/files.h"
#include "lockstep/config/server.h"
#include "lockstep/service/attempt.h"

// Jobs of different users under different Unix users: queue.unix_users.
namespace lockstep::service {

struct UnixUser {
  std::string name;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups = {};  // all of them, as after a login
  std::string home;
};

// Returns whom the jobs of a user run as; nothing: as the server. Throws a Refusal for
// a user that is not in the list where there is one, and Fault::config for a name that
// is no Unix user's.
std::optional<UnixUser> unix_user_of(const config::QueueConfig& queue,
                                     const std::string& user);

// Returns the Unix user of this number. Throws Fault::config if there is none any more.
UnixUser unix_user(uid_t uid);

// Looks whether the server can do what the config says, and lets other users pass
// through its folders, which they can not list. Throws Fault::config, with the knob.
void prepare_unix_users(const config::QueueConfig& queue, const files::Path& state);

// Makes the folder of a job, which belongs to that user, or to us. Throws Fault::config
// where it is there and is another's: what a user has made is not taken over by
// another.
void make_job_folder(const JobFolder& folder, const std::optional<UnixUser>& user);

// Makes a file of the server readable for jobs of this user, and for no others. Throws
// Fault::config if it was made so for another one.
void give_file(const files::Path& file, const UnixUser& user);

}  // namespace lockstep::service
