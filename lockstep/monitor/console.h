#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/base/terminal.h"

namespace lockstep::monitor {

// The numbers of the live line.
struct ProgressLine {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double loss = 0;
  std::string metrics;  // beside the loss: "accuracy 84.91 %"
  double lr = 0;
  double samples_per_second = 0;
  std::int64_t memory_bytes = 0;
};

// Returns "step 350/1875  18 %  00:12<00:54  loss 0.4123  accuracy 84.91 %  lr 1.0e-03
//  2,410 samples/s  512.0 MiB", without the line break.
std::string progress_text(const ProgressLine& progress,
                          std::chrono::duration<double> elapsed);

struct ConsoleOptions {
  bool live = false;  // a terminal that can redraw its last line
  bool color = false;
  std::function<int()> columns;  // of the terminal, asked at each redraw
  std::function<void(std::string_view)> write;
  std::chrono::milliseconds plain_every{5000};  // between lines when not live
};

// Returns the options for standard error: a terminal or not, NO_COLOR and its friends.
ConsoleOptions standard_error_options(const terminal::Variable& variable);

// Shows a run to a user: one live line, redrawn at most ten times a second, with whole
// lines above it; plain lines now and then where nothing can be redrawn.
//
// Threads: any; log lines come from several.
class Console {
 public:
  explicit Console(ConsoleOptions options, const Clock& clock = Clock::system());
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void start();  // the time from which elapsed and remaining are counted
  void progress(const ProgressLine& progress);
  // Moves the live line on between two progress() calls; plain lines stay as rare as
  // they are.
  void tick(std::int64_t step);
  // Prints text that ends with a line break, above the live line.
  void print(std::string_view text);
  // Prints a log line, coloured by its level.
  void log_line(log::Level level, std::string_view line);
  // Leaves the last state of the live line standing.
  void finish();

 private:
  void draw(bool force);
  void clear_live();

  const ConsoleOptions options_;
  const Clock& clock_;
  std::mutex mutex_;  // guards what follows
  SteadyTime started_;
  std::optional<SteadyTime> drawn_;
  std::optional<ProgressLine> latest_;
  bool unshown_ = false;     // `latest_` is newer than what is drawn
  bool live_drawn_ = false;  // the cursor stands behind a live line
};

}  // namespace lockstep::monitor
