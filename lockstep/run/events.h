#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/files.h"
#include "lockstep/run/field.h"

namespace lockstep::run {

// Appends the events of a run to events.jsonl: {"time":...,"event":"started",...}.
// docs/run_directory.md lists the kinds. Lines of several processes do not mix.
class EventWriter {
 public:
  explicit EventWriter(const files::Path& path, const Clock& clock = Clock::system());

  // The line survives a power cut when this returns: events are rare and each matters.
  void write(std::string_view kind, std::span<const NamedValue> fields = {});
  void write(std::string_view kind, std::initializer_list<NamedValue> fields);

 private:
  files::LineWriter lines_;
  const Clock& clock_;
};

struct Event {
  double time = 0;  // seconds since 1970
  std::string kind;
  std::vector<NamedValue> fields;
};

// Returns the last `count` events, oldest first; a line that is no event (torn by a
// crash) is left out. A missing file has none.
std::vector<Event> last_events(const files::Path& path, std::size_t count);

// The end of the last attempt of a run, as its event `done` says.
struct RunDone {
  std::int64_t steps = 0;
  std::string reason;  // "done", or why it has ended early
  bool over = false;   // false: train.max_time was reached, and a rerun goes on

  bool operator==(const RunDone&) const = default;
};
// Returns nothing if the last attempt has not come to an end, or was stopped.
std::optional<RunDone> last_done(const files::Path& events);

// Returns how many of a kind there are. Reads the whole file.
std::int64_t count_events(const files::Path& path, std::string_view kind);

}  // namespace lockstep::run
