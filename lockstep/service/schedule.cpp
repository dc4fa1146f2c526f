#include "lockstep/service/schedule.h"

#include <algorithm>
#include <deque>
#include <map>

#include "lockstep/base/str.h"

namespace lockstep::service {
namespace {

constexpr double kSecondsPerHour = 3600;

struct Standing {
  int active = 0;
  double seconds = 0;
  double gpu_seconds = 0;
};

// A plan computes nothing on GPUs: it does not wait for them.
Resources resources_of(const Job& job) {
  return job.kind == JobKind::plan ? Resources{.cores = 1} : job.resources;
}

class Scheduler {
 public:
  Scheduler(const QueueView& view, const config::QuotaConfig& quota)
      : view_(view), quota_(quota), leases_(view.leases) {
    for (const auto& use : view.use) {
      users_[use.user] = {use.active_jobs, use.seconds, use.gpu_seconds};
    }
  }

  // Users' jobs of one priority are in order among themselves, so that only the first
  // of each user has to be compared: 10,000 jobs may wait.
  std::vector<Turn> run() {
    using ByUser = std::map<std::string_view, std::deque<std::size_t>>;
    std::map<int, ByUser, std::greater<>> waiting;
    for (std::size_t i = 0; i < view_.queued.size(); ++i) {
      waiting[view_.queued[i].priority][view_.queued[i].user].push_back(i);
    }
    std::vector<Turn> turns;
    for (auto& [priority, by_user] : waiting) {
      while (!by_user.empty()) {
        const auto next = std::min_element(
            by_user.begin(), by_user.end(), [this](const auto& a, const auto& b) {
              return is_before(view_.queued[a.second.front()],
                               view_.queued[b.second.front()]);
            });
        const auto index = next->second.front();
        next->second.pop_front();
        if (next->second.empty()) by_user.erase(next);
        turns.push_back(turn_of(view_.queued[index]));
        turns.back().index = index;
      }
    }
    return turns;
  }

 private:
  bool is_before(const Job& a, const Job& b) {
    const auto& first = users_[a.user];
    const auto& second = users_[b.user];
    if (a.user != b.user && first.active != second.active) {
      return first.active < second.active;
    }
    if (a.user != b.user && first.seconds != second.seconds) {
      return first.seconds < second.seconds;
    }
    return a.number < b.number;
  }

  Turn turn_of(const Job& job) {
    Turn turn{.job = job.id};
    turn.reason = why_it_waits(job, turn);
    if (!turn.reason.empty()) return turn;
    const auto wanted = resources_of(job);
    auto& behind = wanted.gpus > 0 ? behind_gpus_ : behind_cores_;
    if (behind != nullptr) {
      // The ids of others' jobs are nobody's business.
      turn.reason =
          str("waits behind ",
              behind->user == job.user ? behind->id : "a job of another user");
      return turn;
    }
    auto allocation = allocate(view_.pool, leases_, wanted);
    if (!allocation) {
      behind = &job;
      turn.reason = allocation.reason;
      return turn;
    }
    for (auto& lease : allocation.leases) lease.job = job.id;
    leases_.insert(leases_.end(), allocation.leases.begin(), allocation.leases.end());
    ++users_[job.user].active;
    turn.leases = std::move(allocation.leases);
    return turn;
  }

  std::string why_it_waits(const Job& job, Turn& turn) {
    for (const auto& needed : job.needs) {
      const auto state = view_.state_of(needed);
      if (state == JobState::done) continue;
      turn.hopeless =
          !state || *state == JobState::failed || *state == JobState::cancelled;
      return turn.hopeless ? str("needs ", needed, ", which is ",
                                 state ? name_of(*state) : "not there")
                           : str("waits for ", needed);
    }
    if (job.not_before > view_.now) {
      return str("waits ", (job.not_before - view_.now + 999) / 1000,
                 " s before it is tried again");
    }
    const auto& user = users_[job.user];
    if (quota_.running_per_user > 0 && user.active >= quota_.running_per_user) {
      return str("quota: ", user.active, " jobs of ", job.user,
                 " run, quota.running_per_user is ", quota_.running_per_user);
    }
    const double hours = user.gpu_seconds / kSecondsPerHour;
    if (resources_of(job).gpus > 0 && quota_.gpu_hours_per_user > 0 &&
        hours >= quota_.gpu_hours_per_user) {
      return str("quota: ", job.user, " has used ", hours,
                 " GPU hours in 30 days, quota.gpu_hours_per_user is ",
                 quota_.gpu_hours_per_user);
    }
    return "";
  }

  const QueueView& view_;
  const config::QuotaConfig& quota_;
  std::vector<Lease> leases_;
  std::map<std::string, Standing> users_;
  const Job* behind_gpus_ = nullptr;  // the jobs that others wait behind
  const Job* behind_cores_ = nullptr;
};

}  // namespace

std::vector<Turn> schedule(const QueueView& view, const config::QuotaConfig& quota) {
  return Scheduler(view, quota).run();
}

}  // namespace lockstep::service
