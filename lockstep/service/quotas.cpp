// What a user may have.
#include "lockstep/base/units.h"
#include "lockstep/service/job_files.h"
#include "lockstep/service/refusal.h"
#include "lockstep/service/service.h"

namespace lockstep::service {

void Service::check_quota(const std::string& user) {
  const auto quota = config().quota;
  for (const auto& use : store_.use()) {
    if (use.user != user || use.open_jobs < quota.jobs_per_user) continue;
    throw Refusal(Refused::too_often, "quota: ", use.open_jobs, " jobs of ", user,
                  " have not ended, quota.jobs_per_user is ", quota.jobs_per_user);
  }
  check_disk(user, 0);
}

// Others' jobs wait behind one of a higher priority, however much its user has used.
void Service::check_priority(const Identity& who, int priority) {
  const int most = config().quota.highest_priority;
  if (who.role == Role::admin || priority <= most) return;
  throw Refusal(Refused::not_allowed, "priority: ", priority,
                " is above quota.highest_priority=", most,
                "; lower it, or ask an admin to submit the job");
}

void Service::check_disk(const std::string& user, std::int64_t more_bytes) {
  const auto quota = config().quota.disk_bytes_per_user;
  if (quota == 0) return;
  auto bytes = uploads_.bytes_of(user) + store_.bytes_of(user);
  // What runs grows: the store has its bytes of earlier attempts only.
  for (const auto& job : store_.jobs_in(kActiveStates)) {
    if (job.user != user) continue;
    bytes += bytes_below(dispatcher_.folder_of(job.id).path()) - job.bytes;
  }
  if (bytes + more_bytes <= quota && (more_bytes > 0 || bytes < quota)) return;
  throw Refusal(Refused::too_large, "quota: runs and files of ", user, " have ",
                units::format_bytes(bytes), ", quota.disk_bytes_per_user is ",
                units::format_bytes(quota), "; remove some (DELETE /v1/jobs/ID, ",
                "DELETE /v1/files/ID)");
}

std::optional<std::string> Service::plan(const Identity& who, const std::string& id) {
  const JobFile file(folder(who, id), "plan.json");
  if (!file) return std::nullopt;
  constexpr std::int64_t kLargestPlan = 16 << 20;
  return files::read(file.path(), kLargestPlan);
}

}  // namespace lockstep::service
