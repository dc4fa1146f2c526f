// What was read from the database, for as long as it is still true.
#include "lockstep/service/store.h"

namespace lockstep::service {

StoreVersion Store::version() {
  const std::lock_guard lock(mutex_);
  auto found = database_.prepare("PRAGMA data_version");
  found.step();
  return {.others = found.integer(0), .own = database_.total_changes()};
}

std::shared_ptr<const JobAndHistory> Store::job_now(const std::string& id) {
  const std::lock_guard lock(mutex_);
  // What a transaction has changed may be taken back.
  const bool may_keep = depth_ == 0;
  const auto now = version();
  const auto* kept = kept_.find(id);
  if (may_keep && kept != nullptr && kept->version == now) return kept->job;
  auto job = find_job(id);
  if (!job) return nullptr;
  const auto bytes = sizeof(JobAndHistory) + job->recipe.size() + job->request.size();
  const auto found = std::make_shared<const JobAndHistory>(
      JobAndHistory{std::move(*job), history(id)});
  if (may_keep) kept_.put(id, {now, found}, bytes);
  return found;
}

}  // namespace lockstep::service
