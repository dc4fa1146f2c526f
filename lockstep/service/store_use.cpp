// What users have had of the machine.
#include "lockstep/service/store.h"

namespace lockstep::service {
namespace {

constexpr Milliseconds kMonth = Milliseconds{30} * 24 * 3600 * 1000;

}  // namespace

// A clock that was set back since a job was started must not take its use back.
std::vector<UserUse> Store::use() {
  const std::lock_guard lock(mutex_);
  auto found = database_.prepare(
      "WITH some AS (SELECT user, seconds, gpu_seconds, gpus, state NOT IN ('done', "
      "'failed', 'cancelled') AS open, state IN ('planning', 'running', 'pausing', "
      "'stopping') AS active, MAX(0, ?1 - spawned) / 1000.0 AS since FROM jobs WHERE "
      "changed > ?2 OR state NOT IN ('done', 'failed', 'cancelled') UNION ALL SELECT "
      "user, seconds, gpu_seconds, 0, 0, 0, 0 FROM removed_use WHERE time > ?2) SELECT "
      "user, SUM(open), SUM(active), SUM(seconds + active * since), SUM(gpu_seconds + "
      "active * since * gpus) FROM some GROUP BY user");
  found.bind(now()).bind(now() - kMonth);
  std::vector<UserUse> users;
  while (found.step()) {
    users.push_back({found.text(0), static_cast<int>(found.integer(1)),
                     static_cast<int>(found.integer(2)), found.number(3),
                     found.number(4)});
  }
  return users;
}

// A user whose quota is used up does not get it back by removing what used it.
void Store::remove_job(std::string_view id) {
  transaction([&] {
    database_
        .prepare(
            "INSERT INTO removed_use SELECT user, changed, seconds, gpu_seconds FROM "
            "jobs WHERE id = ? AND seconds > 0")
        .bind(id)
        .run();
    database_.prepare("DELETE FROM removed_use WHERE time <= ?")
        .bind(now() - kMonth)
        .run();
    database_.prepare("DELETE FROM history WHERE job = ?").bind(id).run();
    database_.prepare("DELETE FROM jobs WHERE id = ?").bind(id).run();
  });
}

std::int64_t Store::bytes_of(std::string_view user) {
  const std::lock_guard lock(mutex_);
  auto sum =
      database_.prepare("SELECT SUM(bytes + text_bytes) FROM jobs WHERE user = ?");
  sum.bind(user);
  return sum.step() ? sum.integer(0) : 0;
}

}  // namespace lockstep::service
