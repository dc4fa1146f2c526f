#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/clock.h"
#include "lockstep/launcher/job.h"
#include "lockstep/monitor/events.h"

namespace lockstep::launcher {

// Tells the person, run.json and events.jsonl what happens. A file that can not be
// written (full disk) must not end a job that still computes: the person is told.
class Notes {
 public:
  Notes(const monitor::RunDirectory& run, const Job& job, const Clock& clock)
      : run_(run), job_(job), clock_(clock) {}

  void say(std::string_view sentence) const;
  void state(monitor::RunState state, const std::string& message);
  void event(std::string_view kind, std::initializer_list<monitor::Field> fields);

 private:
  const monitor::RunDirectory& run_;
  const Job& job_;
  const Clock& clock_;
  std::optional<monitor::EventWriter> events_;
  bool events_failed_ = false;
};

}  // namespace lockstep::launcher
