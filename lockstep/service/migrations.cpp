#include "lockstep/service/detail/migrations.h"

#include <array>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::service {
namespace {

// Each brings the layout to the version after it. They are history: existing ones never
// change.
constexpr std::array<std::string_view, 3> kMigrations{R"sql(
CREATE TABLE users (
  name TEXT PRIMARY KEY, unix_user TEXT NOT NULL DEFAULT '', created INTEGER NOT NULL,
  settings TEXT NOT NULL DEFAULT '') STRICT;
CREATE TABLE tokens (
  id TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, user TEXT NOT NULL REFERENCES users,
  role TEXT NOT NULL, created INTEGER NOT NULL, expires INTEGER NOT NULL,
  revoked INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
  user TEXT NOT NULL REFERENCES users, name TEXT NOT NULL, state TEXT NOT NULL,
  reason TEXT NOT NULL, priority INTEGER NOT NULL,
  created INTEGER NOT NULL, changed INTEGER NOT NULL, started INTEGER NOT NULL DEFAULT 0,
  finished INTEGER NOT NULL DEFAULT 0, not_before INTEGER NOT NULL DEFAULT 0,
  spawned INTEGER NOT NULL DEFAULT 0, attempt INTEGER NOT NULL DEFAULT 0,
  retries INTEGER NOT NULL DEFAULT 0, max_retries INTEGER NOT NULL,
  time_limit INTEGER NOT NULL, cores INTEGER NOT NULL, gpus INTEGER NOT NULL,
  gpu_ids TEXT NOT NULL, min_memory INTEGER NOT NULL, memory_fraction REAL NOT NULL,
  seconds REAL NOT NULL DEFAULT 0, gpu_seconds REAL NOT NULL DEFAULT 0,
  needs TEXT NOT NULL, request TEXT NOT NULL, recipe TEXT NOT NULL,
  overrides TEXT NOT NULL) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE INDEX jobs_by_user ON jobs (user, number);
CREATE TABLE history (
  number INTEGER PRIMARY KEY AUTOINCREMENT, job TEXT NOT NULL, time INTEGER NOT NULL,
  state TEXT NOT NULL, reason TEXT NOT NULL) STRICT;
CREATE INDEX history_by_job ON history (job, number);
CREATE TABLE leases (
  job TEXT NOT NULL, is_gpu INTEGER NOT NULL, unit INTEGER NOT NULL,
  share REAL NOT NULL) STRICT;
CREATE TABLE files (
  id TEXT PRIMARY KEY, user TEXT NOT NULL REFERENCES users, name TEXT NOT NULL,
  size INTEGER NOT NULL, sha256 TEXT NOT NULL, created INTEGER NOT NULL,
  complete INTEGER NOT NULL DEFAULT 0) STRICT;
CREATE TABLE audit (
  number INTEGER PRIMARY KEY, time INTEGER NOT NULL, user TEXT NOT NULL,
  token TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL,
  status INTEGER NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL) STRICT;
)sql",
                                                      R"sql(
ALTER TABLE jobs ADD COLUMN kind TEXT NOT NULL DEFAULT 'training';
ALTER TABLE jobs ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
)sql",
                                                      R"sql(
ALTER TABLE jobs ADD COLUMN recipe_key TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN text_bytes INTEGER NOT NULL DEFAULT 0;
CREATE TABLE removed_use (
  user TEXT NOT NULL REFERENCES users, time INTEGER NOT NULL, seconds REAL NOT NULL,
  gpu_seconds REAL NOT NULL) STRICT;
)sql"};

int version_of(Database& database) {
  auto statement = database.prepare("PRAGMA user_version");
  return statement.step() ? static_cast<int>(statement.integer(0)) : 0;
}

}  // namespace

void migrate(Database& database, int to) {
  static_assert(!kMigrations.empty());
  // Who only reads does not wait for those who write.
  if (version_of(database) == to) return;
  // Looked at again inside of the transaction: another process may be at the same.
  Transaction transaction(database);
  const int from = version_of(database);
  if (from > to) {
    throw Error(Fault::config, "database: its layout is of version ", from,
                ", this program knows ", to, "; use a newer lockstep");
  }
  for (int version = from; version < to; ++version) {
    database.execute(std::string(kMigrations.at(static_cast<std::size_t>(version))));
  }
  database.execute(str("PRAGMA user_version=", to));
  transaction.commit();
}

}  // namespace lockstep::service
