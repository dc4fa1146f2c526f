#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/service/access.h"

namespace lockstep::service {

// One call that changed something, or tried to.
struct AuditEntry {
  std::int64_t number = 0;  // from 1, without gaps
  Milliseconds time = 0;
  std::string user;
  std::string token;
  std::string action;  // "POST /v1/jobs"
  std::string target;  // the id of what it was about, "" if none
  int status = 0;      // of the answer
  std::string previous;
  std::string hash;  // of all of the above, so that no line can be changed or left out
};

// Appends to the log. Inside of a transaction it is a part of it, so that a change and
// its line are there together or not at all.
void write_audit(Store& store, AuditEntry entry);

std::vector<AuditEntry> audit(Store& store, std::int64_t after, int limit);

// Returns the number of the first line that is not as it was written, or missing.
// Nothing if all are good. Cutting lines off the end is seen by whoever has kept the
// last hash.
std::optional<std::int64_t> first_altered(Store& store);

// Returns the newest line; nothing if there is none. Lines that were cut off at the end
// leave no other trace than that this one was seen before.
std::optional<AuditEntry> last_audit(Store& store);

}  // namespace lockstep::service
