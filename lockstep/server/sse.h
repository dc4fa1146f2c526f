#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/files.h"
#include "lockstep/server/http.h"

namespace lockstep::server {

struct TailOptions {
  files::Path file;
  std::string event;  // the name of each event: "metrics"
  // Where to begin: the id of the last event that was seen is the place behind it.
  std::int64_t offset = 0;
  // Returns whether nothing more will come.
  std::function<bool()> is_over;
};

// The lines of a growing file as server-sent events. The id of an event is the byte
// behind its line, so that a client that was cut off goes on exactly there
// (Last-Event-ID). Only whole lines are sent. A file that has become shorter, as a log
// does that is rotated, is read from its begin.
std::unique_ptr<Stream> tail_events(TailOptions options);

// The bytes of a file that does not change.
std::unique_ptr<Stream> file_bytes(const files::Path& file);

}  // namespace lockstep::server
