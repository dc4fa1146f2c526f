#include "lockstep/service/store.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/service/detail/migrations.h"
#include "lockstep/service/detail/whole_number.h"
#include "lockstep/service/secrets.h"

namespace lockstep::service {
namespace {

using Json = nlohmann::ordered_json;
using Lock = std::lock_guard<std::recursive_mutex>;

constexpr std::size_t kIdBytes = 8;
constexpr std::size_t kMostKeptBytes = 16 << 20;

constexpr std::string_view kColumns =
    "number, id, user, name, state, reason, priority, created, changed, started, "
    "finished, not_before, spawned, attempt, retries, max_retries, time_limit, cores, "
    "gpus, gpu_ids, min_memory, memory_fraction, seconds, gpu_seconds, needs, "
    "overrides, kind, bytes, recipe_key, ";
constexpr std::string_view kWithTexts = "request, recipe";
constexpr std::string_view kWithoutTexts = "'', ''";

// What we have written ourselves: a text that is none is a damaged database.
template <typename T>
T parsed(const std::string& text) {
  try {
    return Json::parse(text).get<T>();
  } catch (const Json::exception&) {
    throw Error(Fault::io, "database: a value is damaged; restore a backup");
  }
}

class Row {
 public:
  explicit Row(const Statement& statement) : statement_(statement) {}

  std::string text() { return statement_.text(column_++); }
  std::int64_t integer() { return statement_.integer(column_++); }
  double number() { return statement_.number(column_++); }

 private:
  const Statement& statement_;
  int column_ = 0;
};

Job job_of(const Statement& statement) {
  Row row(statement);
  Job job;
  job.number = row.integer();
  job.id = row.text();
  job.user = row.text();
  job.name = row.text();
  const auto state = job_state_of(row.text());
  LOCKSTEP_CHECK(state.has_value(), "state of job ", job.id);
  job.state = *state;
  job.reason = row.text();
  job.priority = static_cast<int>(row.integer());
  job.created = row.integer();
  job.changed = row.integer();
  job.started = row.integer();
  job.finished = row.integer();
  job.not_before = row.integer();
  job.spawned = row.integer();
  job.attempt = static_cast<int>(row.integer());
  job.retries = static_cast<int>(row.integer());
  job.max_retries = static_cast<int>(row.integer());
  job.time_limit = row.integer();
  job.resources.cores = static_cast<int>(row.integer());
  job.resources.gpus = static_cast<int>(row.integer());
  job.resources.gpu_ids = whole_numbers<int>(parsed<std::vector<Json>>(row.text()));
  job.resources.min_memory_bytes = row.integer();
  job.resources.memory_fraction = row.number();
  job.seconds = row.number();
  job.gpu_seconds = row.number();
  job.needs = parsed<std::vector<std::string>>(row.text());
  job.overrides = parsed<std::vector<std::pair<std::string, std::string>>>(row.text());
  job.kind = job_kind_of(row.text()).value_or(JobKind::training);
  job.bytes = row.integer();
  job.recipe_key = row.text();
  job.request = row.text();
  job.recipe = row.text();
  return job;
}

std::vector<Job> jobs_of(Statement& statement) {
  std::vector<Job> jobs;
  while (statement.step()) jobs.push_back(job_of(statement));
  return jobs;
}

}  // namespace

Store::Store(const std::filesystem::path& file, const Clock& clock)
    : database_(file), clock_(clock), kept_(kMostKeptBytes) {
  migrate(database_, kVersion);
}

void Store::transaction(const std::function<void()>& body) {
  const Lock lock(mutex_);
  if (depth_ > 0) return body();  // inside of one: its owner commits
  ++depth_;
  try {
    Transaction transaction(database_);
    body();
    transaction.commit();
  } catch (...) {
    --depth_;
    throw;
  }
  --depth_;
}

Milliseconds Store::now() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             clock_.wall().time_since_epoch())
      .count();
}

std::string Store::add_job(const NewJob& job) {
  const auto id = "job-" + random_hex(kIdBytes);
  transaction([&] {
    const auto time = now();
    database_
        .prepare(
            "INSERT INTO jobs (id, user, name, state, reason, priority, created, "
            "changed, max_retries, time_limit, cores, gpus, gpu_ids, min_memory, "
            "memory_fraction, needs, request, recipe, overrides, kind, recipe_key, "
            "text_bytes) VALUES (?, ?, ?, 'queued', '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
            "?, ?, ?, ?, ?, ?, ?)")
        .bind(id)
        .bind(job.user)
        .bind(job.name)
        .bind(job.priority)
        .bind(time)
        .bind(time)
        .bind(job.max_retries)
        .bind(job.time_limit)
        .bind(job.resources.cores)
        .bind(job.resources.gpus)
        .bind(Json(job.resources.gpu_ids).dump())
        .bind(job.resources.min_memory_bytes)
        .bind(job.resources.memory_fraction)
        .bind(Json(job.needs).dump())
        .bind(job.request)
        .bind(job.recipe)
        .bind(Json(job.overrides).dump())
        .bind(name_of(job.kind))
        .bind(sha256(job.recipe))
        .bind(static_cast<std::int64_t>(job.request.size() + job.recipe.size()))
        .run();
    database_
        .prepare(
            "INSERT INTO history (job, time, state, reason) VALUES (?, ?, "
            "'queued', 'submitted')")
        .bind(id)
        .bind(time)
        .run();
  });
  return id;
}

std::optional<Job> Store::find_job(std::string_view id) {
  static const auto kSql =
      str("SELECT ", kColumns, kWithTexts, " FROM jobs WHERE id = ?");
  const Lock lock(mutex_);
  auto found = database_.prepare(kSql);
  found.bind(id);
  if (!found.step()) return std::nullopt;
  return job_of(found);
}

std::vector<Job> Store::jobs(const JobFilter& filter) {
  const Lock lock(mutex_);
  auto found = database_.prepare(
      str("SELECT ", kColumns, kWithoutTexts,
          " FROM jobs WHERE (?1 = '' OR user = ?1) AND (?2 = '' OR state = ?2) AND "
          "(?3 = 0 OR number < ?3) AND (?4 = '' OR kind = ?4) ORDER BY number DESC "
          "LIMIT ?5"));
  found.bind(filter.user)
      .bind(filter.state ? name_of(*filter.state) : std::string_view())
      .bind(filter.before)
      .bind(filter.kind ? name_of(*filter.kind) : std::string_view())
      .bind(filter.limit);
  return jobs_of(found);
}

std::vector<Job> Store::jobs_in(std::span<const JobState> states) {
  const Lock lock(mutex_);
  std::vector<Job> all;
  for (const auto state : states) {
    auto found = database_.prepare(str("SELECT ", kColumns, kWithoutTexts,
                                       " FROM jobs WHERE state = ? ORDER BY number"));
    found.bind(name_of(state));
    auto some = jobs_of(found);
    std::move(some.begin(), some.end(), std::back_inserter(all));
  }
  std::sort(all.begin(), all.end(),
            [](const Job& a, const Job& b) { return a.number < b.number; });
  return all;
}

bool Store::move(std::string_view id, const StateMove& change) {
  if (!may_follow(change.from, change.to)) return false;
  bool moved = false;
  transaction([&] {
    const auto time = now();
    database_
        .prepare(
            "UPDATE jobs SET state = ?1, reason = ?2, changed = ?3, started = CASE "
            "WHEN ?1 = 'planning' AND started = 0 THEN ?3 ELSE started END, finished = "
            "CASE WHEN ?1 IN ('done', 'failed', 'cancelled') THEN ?3 ELSE 0 END WHERE "
            "id = ?4 AND state = ?5")
        .bind(name_of(change.to))
        .bind(change.reason)
        .bind(time)
        .bind(id)
        .bind(name_of(change.from))
        .run();
    moved = database_.changes() == 1;
    if (!moved) return;
    database_
        .prepare("INSERT INTO history (job, time, state, reason) VALUES (?, ?, ?, ?)")
        .bind(id)
        .bind(time)
        .bind(name_of(change.to))
        .bind(change.reason)
        .run();
  });
  return moved;
}

std::vector<StateChange> Store::history(std::string_view id) {
  const Lock lock(mutex_);
  auto found = database_.prepare(
      "SELECT time, state, reason FROM history WHERE job = ? ORDER BY number");
  found.bind(id);
  std::vector<StateChange> changes;
  while (found.step()) {
    changes.push_back({found.integer(0),
                       job_state_of(found.text(1)).value_or(JobState::failed),
                       found.text(2)});
  }
  return changes;
}

std::vector<NumberedChange> Store::changes_after(std::int64_t number, int limit) {
  const Lock lock(mutex_);
  auto found = database_.prepare(
      "SELECT number, job, time, state, reason FROM history WHERE number > ? ORDER BY "
      "number LIMIT ?");
  found.bind(number).bind(limit);
  std::vector<NumberedChange> changes;
  while (found.step()) {
    NumberedChange change;
    change.number = found.integer(0);
    change.job = found.text(1);
    change.time = found.integer(2);
    change.state = job_state_of(found.text(3)).value_or(JobState::failed);
    change.reason = found.text(4);
    changes.push_back(std::move(change));
  }
  return changes;
}

std::int64_t Store::last_change() {
  const Lock lock(mutex_);
  auto found = database_.prepare("SELECT MAX(number) FROM history");
  return found.step() ? found.integer(0) : 0;
}

void Store::set_resources(std::string_view id, const Resources& resources) {
  const Lock lock(mutex_);
  database_
      .prepare(
          "UPDATE jobs SET cores = ?, gpus = ?, gpu_ids = ?, min_memory = ?, "
          "memory_fraction = ? WHERE id = ?")
      .bind(resources.cores)
      .bind(resources.gpus)
      .bind(Json(resources.gpu_ids).dump())
      .bind(resources.min_memory_bytes)
      .bind(resources.memory_fraction)
      .bind(id)
      .run();
}

void Store::set_overrides(
    std::string_view id,
    const std::vector<std::pair<std::string, std::string>>& overrides) {
  const Lock lock(mutex_);
  database_.prepare("UPDATE jobs SET overrides = ? WHERE id = ?")
      .bind(Json(overrides).dump())
      .bind(id)
      .run();
}

void Store::set_attempt(std::string_view id, int attempt, Milliseconds spawned) {
  const Lock lock(mutex_);
  database_.prepare("UPDATE jobs SET attempt = ?, spawned = ? WHERE id = ?")
      .bind(attempt)
      .bind(spawned)
      .bind(id)
      .run();
}

void Store::set_retry(std::string_view id, int retries, Milliseconds not_before) {
  const Lock lock(mutex_);
  database_.prepare("UPDATE jobs SET retries = ?, not_before = ? WHERE id = ?")
      .bind(retries)
      .bind(not_before)
      .bind(id)
      .run();
}

void Store::add_use(std::string_view id, double seconds, double gpu_seconds) {
  const Lock lock(mutex_);
  database_
      .prepare(
          "UPDATE jobs SET seconds = seconds + ?, gpu_seconds = gpu_seconds + ? "
          "WHERE id = ?")
      .bind(seconds)
      .bind(gpu_seconds)
      .bind(id)
      .run();
}

void Store::set_bytes(std::string_view id, std::int64_t bytes) {
  const Lock lock(mutex_);
  database_.prepare("UPDATE jobs SET bytes = ? WHERE id = ?")
      .bind(bytes)
      .bind(id)
      .run();
}

void Store::add_leases(std::span<const Lease> leases) {
  transaction([&] {
    for (const auto& lease : leases) {
      database_
          .prepare("INSERT INTO leases (job, is_gpu, unit, share) VALUES (?, ?, ?, ?)")
          .bind(lease.job)
          .bind(lease.is_gpu ? 1 : 0)
          .bind(lease.unit)
          .bind(lease.share)
          .run();
    }
  });
}

void Store::drop_leases(std::string_view job) {
  const Lock lock(mutex_);
  database_.prepare("DELETE FROM leases WHERE job = ?").bind(job).run();
}

std::vector<Lease> Store::leases() {
  const Lock lock(mutex_);
  auto found = database_.prepare("SELECT job, is_gpu, unit, share FROM leases");
  std::vector<Lease> all;
  while (found.step()) {
    all.push_back({found.text(0), found.integer(1) != 0,
                   static_cast<int>(found.integer(2)), found.number(3)});
  }
  return all;
}

std::string Store::settings(std::string_view user) {
  const Lock lock(mutex_);
  auto found = database_.prepare("SELECT settings FROM users WHERE name = ?");
  found.bind(user);
  return found.step() ? found.text(0) : "";
}

void Store::set_settings(std::string_view user, std::string_view json) {
  const Lock lock(mutex_);
  database_.prepare("UPDATE users SET settings = ? WHERE name = ?")
      .bind(json)
      .bind(user)
      .run();
}

}  // namespace lockstep::service
