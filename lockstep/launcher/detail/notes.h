#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/clock.h"
#include "lockstep/launcher/job.h"
#include "lockstep/run/events.h"

namespace lockstep::launcher {

// Tells the user, run.json and events.jsonl what happens. A file that can not be
// written (full disk) must not end a job that still computes: the user is told.
class Notes {
 public:
  Notes(const run::RunDirectory& run, const Job& job, const Clock& clock)
      : run_(run), job_(job), clock_(clock) {}

  void say(std::string_view sentence) const;
  void state(run::RunStatus state, const std::string& message);
  void event(std::string_view kind, std::initializer_list<run::NamedValue> fields);

 private:
  const run::RunDirectory& run_;
  const Job& job_;
  const Clock& clock_;
  std::optional<run::EventWriter> events_;
  bool events_failed_ = false;
};

}  // namespace lockstep::launcher
