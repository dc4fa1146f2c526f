#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lockstep/config/server.h"
#include "lockstep/service/slots.h"
#include "lockstep/service/store.h"

namespace lockstep::service {

// Everything that decides who is next.
struct QueueView {
  std::vector<Job> queued;
  std::vector<Lease> leases;
  std::vector<UserUse> use;
  Pool pool;
  Milliseconds now = 0;
  // Returns the state of a job that another one needs; nothing if there is none.
  std::function<std::optional<JobState>(const std::string&)> state_of;
};

// The place of a job in the queue.
struct Turn {
  std::string job;
  std::size_t index = 0;      // of it in QueueView::queued
  std::vector<Lease> leases;  // it starts now with these; empty: it waits
  std::string reason;         // why it waits
  bool hopeless = false;      // what it needs will never be
};

// Returns all jobs in the order of their turns: by priority, then users that have used
// the machine least, then the oldest. A job that does not fit holds up those behind it
// that want the same kind of thing, so that a large one is not starved by small ones.
// A pure function.
std::vector<Turn> schedule(const QueueView& view, const config::QuotaConfig& quota);

}  // namespace lockstep::service
