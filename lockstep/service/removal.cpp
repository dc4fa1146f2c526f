// What is not wanted any more.
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/service/secrets.h"
#include "lockstep/service/service.h"

namespace lockstep::service {

// Its folder is out of the way at once; its bytes, which may be many, go when nobody
// waits: who asks here has the database for himself.
void Service::remove(const Identity& who, const std::string& id) {
  const auto folder = dispatcher_.folder_of(id);
  store_.transaction([&] {
    const auto now = changeable(who, id);
    if (!is_over(now.state)) {
      throw Refusal(Refused::conflict, "the job is ", name_of(now.state),
                    "; cancel it first");
    }
    store_.remove_job(id);
    std::error_code error;
    std::filesystem::rename(folder.path(),
                            state_ / "removed" / str(id, "-", random_hex(4)), error);
    // One that has never been started has none.
    if (error && error != std::errc::no_such_file_or_directory) {
      files::fail("remove", folder.path(), error.value());
    }
  });
  runs_.forget(folder);
  dispatcher_.wake();
}

int Service::clean_up() {
  const auto store = config().store;
  const Identity admin{.user = "server", .role = Role::admin, .token = "local"};
  int removed = 0;
  const auto remove_unless_changed = [&](const std::function<void()>& remove) {
    try {
      remove();
      ++removed;
    } catch (
        const Refusal&) {  // somebody has removed it, or gone on with it, meanwhile
    }
  };
  if (store.keep_runs.count() > 0) {
    for (const auto& job : store_.jobs({.limit = 1'000'000})) {
      if (!is_over(job.state) || job.finished == 0 ||
          store_.now() - job.finished < store.keep_runs.count()) {
        continue;
      }
      remove_unless_changed([&] { remove(admin, job.id); });
    }
  }
  uploads_.remove_strays();
  if (store.keep_uploads.count() == 0) return removed;
  std::string used;
  for (const auto& job : store_.jobs({.limit = 1'000'000})) {
    for (const auto& [key, value] : job.overrides) used += value + "\n";
  }
  for (const auto& upload : uploads_.list(admin)) {
    const bool is_used = used.find(upload.id) != std::string::npos;
    if (is_used || store_.now() - upload.created < store.keep_uploads.count()) continue;
    remove_unless_changed([&] { uploads_.remove(admin, upload.id); });
  }
  return removed;
}

}  // namespace lockstep::service
