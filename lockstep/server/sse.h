#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/base/files.h"
#include "lockstep/server/http.h"

namespace lockstep::server {

struct TailOptions {
  files::Path file;  // is looked at, whether it has grown
  // Opens it, nothing if it can not be. Empty: no link is followed, and that is all.
  std::function<files::Descriptor()> open = {};
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

// The same stream, which ends within a second once whoever has it may not have it any
// more.
std::unique_ptr<Stream> while_allowed(std::unique_ptr<Stream> stream,
                                      std::function<bool()> is_allowed);

// The bytes of an open file that does not change.
std::unique_ptr<Stream> file_bytes(files::Descriptor file);

}  // namespace lockstep::server
