#include "lockstep/service/audit.h"

#include <nlohmann/json.hpp>

#include "lockstep/service/secrets.h"

namespace lockstep::service {
namespace {

// A list, so that no field can pass for a part of its neighbour.
std::string audit_hash(const AuditEntry& entry) {
  const nlohmann::json fields = {entry.number, entry.time,    entry.user,
                                 entry.token,  entry.action,  entry.target,
                                 entry.status, entry.previous};
  return sha256(fields.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

AuditEntry audit_entry(const Statement& row) {
  return {.number = row.integer(0),
          .time = row.integer(1),
          .user = row.text(2),
          .token = row.text(3),
          .action = row.text(4),
          .target = row.text(5),
          .status = static_cast<int>(row.integer(6)),
          .previous = row.text(7),
          .hash = row.text(8)};
}

}  // namespace

std::optional<AuditEntry> last_audit(Store& store) {
  const std::lock_guard lock(store.mutex());
  auto found = store.database().prepare(
      "SELECT number, time, user, token, action, target, status, previous, hash FROM "
      "audit ORDER BY number DESC LIMIT 1");
  if (!found.step()) return std::nullopt;
  return audit_entry(found);
}

void write_audit(Store& store, AuditEntry entry) {
  store.transaction([&] {
    const auto last = last_audit(store);
    entry.number = last ? last->number + 1 : 1;
    entry.previous = last ? last->hash : "";
    entry.time = store.now();
    entry.hash = audit_hash(entry);
    store.database()
        .prepare(
            "INSERT INTO audit (number, time, user, token, action, target, "
            "status, previous, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(entry.number)
        .bind(entry.time)
        .bind(entry.user)
        .bind(entry.token)
        .bind(entry.action)
        .bind(entry.target)
        .bind(entry.status)
        .bind(entry.previous)
        .bind(entry.hash)
        .run();
  });
}

std::vector<AuditEntry> audit(Store& store, std::int64_t after, int limit) {
  const std::lock_guard lock(store.mutex());
  auto found = store.database().prepare(
      "SELECT number, time, user, token, action, target, status, previous, hash FROM "
      "audit WHERE number > ? ORDER BY number LIMIT ?");
  found.bind(after).bind(limit);
  std::vector<AuditEntry> entries;
  while (found.step()) entries.push_back(audit_entry(found));
  return entries;
}

std::optional<std::int64_t> first_altered(Store& store) {
  std::string previous;
  std::int64_t number = 0;
  constexpr int kAtOnce = 1000;
  while (true) {
    const auto entries = audit(store, number, kAtOnce);
    if (entries.empty()) return std::nullopt;
    for (const auto& entry : entries) {
      ++number;
      if (entry.number != number || entry.previous != previous ||
          entry.hash != audit_hash(entry)) {
        return number;
      }
      previous = entry.hash;
    }
  }
}

}  // namespace lockstep::service
