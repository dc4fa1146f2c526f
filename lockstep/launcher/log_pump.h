#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/base/files.h"

namespace lockstep::launcher {

// A set of a rank's streams, in torchrun's numbers.
enum class StdStreams : unsigned { nothing = 0, out = 1, err = 2, both = 3 };

constexpr bool has(StdStreams set, StdStreams stream) noexcept {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(stream)) != 0;
}

// The streams of one rank and where they go.
struct RankStreams {
  files::Descriptor out, err;              // read ends of pipes; may be none
  files::Path log;                         // both of them, appended
  StdStreams shown = StdStreams::nothing;  // which also go to the terminal
  std::string prefix;                      // of each line there: "[rank0]: ", or ""
};

// Reads what ranks print and writes it as whole lines: to each rank's log, which is
// rotated by size, and to the terminal.
//
// Nothing is lost and no line is mixed with another, as long as it is not longer than
// 64 KiB: of a longer one, and of a progress bar that goes back with \r, the pieces are
// passed on, and end with a newline only where another stream comes between. A last
// line without a newline gets one. Output of ranks is passed on byte by byte, control
// characters too: it is their terminal.
//
// A log that can not be written (full disk) does not stop a rank: the terminal is told
// once, its lines are shown as before, and the log says how many bytes it lacks when it
// can be written again. A terminal that does not take its lines (Ctrl-S) holds up only
// the ranks that are shown there, and those only when 16 MiB are waiting.
//
// Threads: the work is done by two threads of its own; add() and finish() are called by
// one thread at a time.
// Lifetime: the destructor gives up what finish() has not waited for.
class LogPump {
 public:
  // Gets whole lines, prefix and newline included; called by one thread at a time, and
  // not that of the caller.
  using Show = std::function<void(StdStreams stream, std::string_view lines)>;

  struct Options {
    std::int64_t rotate_bytes = 64 << 20;  // a log is moved away before it is larger
    int keep = 3;                          // so many of the moved: rank_0.log.1, .2, .3
    Show show;                             // empty: standard output and standard error
  };

  LogPump();
  explicit LogPump(Options options);
  ~LogPump();
  LogPump(const LogPump&) = delete;
  LogPump& operator=(const LogPump&) = delete;

  // Starts to read. Never fails because of the log: see above.
  void add(RankStreams rank);

  // Returns when all that the ranks have printed is in the logs and on the terminal.
  // Call it when the ranks have ended: data in the pipes then is read in any case, but
  // for more from a process that outlived its rank and holds its pipe, and for a
  // terminal that stands still, it waits no longer than `limit`. Afterwards the logs
  // are closed, and ranks may be added again.
  void finish(std::chrono::milliseconds limit);

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

}  // namespace lockstep::launcher
