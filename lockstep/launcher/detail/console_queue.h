#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/launcher/log_pump.h"

namespace lockstep::launcher::detail {

// The lines on their way to a terminal that may be slow, written by a thread of its
// own.
//
// Threads: any.
// Lifetime: the destructor drops what has not been written; a `show` of the caller's is
// waited for, the built-in one is interrupted.
class ConsoleQueue {
 public:
  explicit ConsoleQueue(LogPump::Show show);

  void push(StdStreams stream, std::string lines);

  // Returns whether too much waits: a caller that can hold back lines should do so.
  bool is_full() const;

  // Returns false if `deadline` has passed before all was written.
  bool wait_until_empty(SteadyTime deadline);

 private:
  struct Item {
    StdStreams stream;
    std::string lines;
  };

  void run(const std::stop_token& stop);

  LogPump::Show show_;
  mutable std::mutex mutex_;           // guards what follows
  std::condition_variable_any more_;   // something waits
  std::condition_variable_any empty_;  // nothing waits
  std::deque<Item> items_;             // the first is being written
  std::size_t waiting_bytes_ = 0;
  std::jthread thread_;  // last: it uses the rest
};

// A thread that leaves every signal to the others.
std::jthread start_thread(std::function<void(std::stop_token)> body);

}  // namespace lockstep::launcher::detail
