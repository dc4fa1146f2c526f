// What users have had of the machine.
#include "lockstep/service/store.h"

namespace lockstep::service {
namespace {

constexpr Milliseconds kMonth = Milliseconds{30} * 24 * 3600 * 1000;

}  // namespace

std::vector<UserUse> Store::use() {
  const std::lock_guard lock(mutex_);
  auto found = database_.prepare(
      "WITH some AS (SELECT user, seconds, gpu_seconds, gpus, state NOT IN ('done', "
      "'failed', 'cancelled') AS open, state IN ('planning', 'running', 'pausing', "
      "'stopping') AS active, (?1 - spawned) / 1000.0 AS since FROM jobs WHERE changed "
      "> ?2 OR state NOT IN ('done', 'failed', 'cancelled')) SELECT user, SUM(open), "
      "SUM(active), SUM(seconds + active * since), SUM(gpu_seconds + active * since * "
      "gpus) FROM some GROUP BY user");
  found.bind(now()).bind(now() - kMonth);
  std::vector<UserUse> users;
  while (found.step()) {
    users.push_back({found.text(0), static_cast<int>(found.integer(1)),
                     static_cast<int>(found.integer(2)), found.number(3),
                     found.number(4)});
  }
  return users;
}

std::int64_t Store::bytes_of(std::string_view user) {
  const std::lock_guard lock(mutex_);
  auto sum = database_.prepare("SELECT SUM(bytes) FROM jobs WHERE user = ?");
  sum.bind(user);
  return sum.step() ? sum.integer(0) : 0;
}

}  // namespace lockstep::service
