#pragma once

#include <string>
#include <vector>

#include "lockstep/cli/detail/run_view.h"
#include "lockstep/hardware/machine.h"

namespace lockstep::cli {

// The state that `lockstep top` shows at one moment.
struct TopState {
  std::optional<jobs::RunView> run;
  std::vector<std::optional<run::Beat>> ranks;
  std::vector<double> losses;  // oldest first
  std::vector<run::Event> events;
  std::vector<hardware::Gpu> gpus;  // with their status
  double cpu_share = 0;
  std::int64_t memory_used_bytes = 0;
  std::int64_t memory_total_bytes = 0;
  double time = 0;       // seconds since 1970
  std::string note;      // why there is no run
  std::string gpu_note;  // why there is no GPU
};

struct Screen {
  int columns = 80;
  int rows = 24;
  bool color = false;
  bool utf8 = true;  // else only ASCII
};

// Returns that of standard output, or the usual one where that is no terminal.
Screen screen_of(const Context& context);

// Returns the lines of one picture: at most `rows`, none wider than `columns`.
std::vector<std::string> top_frame(const TopState& state, const Screen& screen);

}  // namespace lockstep::cli
