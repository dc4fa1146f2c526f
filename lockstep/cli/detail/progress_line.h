#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/cli/command.h"

namespace lockstep::cli {

// One line on standard error for a command that takes a while: redrawn at most ten
// times a second on a terminal, else a line every five seconds.
class ProgressLine {
 public:
  explicit ProgressLine(const Context& context, const Clock& clock = Clock::system());
  ~ProgressLine();  // takes the line off the terminal
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // `text` is only called when a line is due.
  void show(const std::function<std::string()>& text);

  double seconds() const;  // since it was made

 private:
  const Clock& clock_;
  SteadyTime started_;
  std::optional<SteadyTime> shown_;
  bool live_;
  std::function<void(std::string_view)> write_;
};

}  // namespace lockstep::cli
