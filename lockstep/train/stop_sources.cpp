#include "lockstep/train/stop_sources.h"

#include <algorithm>
#include <csignal>

namespace lockstep::train {
namespace {

// The least time before a batch system ends the job, whatever a checkpoint takes.
constexpr std::chrono::duration<double> kLeast{60};
constexpr std::chrono::milliseconds kLookEvery{500};  // for a file

}  // namespace

int StopSources::asked() {
  if (const int signal = signals_.signal()) return signal;
  if (!is_first_ || by_file_ != 0) return by_file_;
  const auto& clock = Clock::system();
  if (job_end_ && *job_end_ - clock.wall() <= std::max(kLeast, room_)) return SIGUSR1;
  if (clock.now() - looked_ < kLookEvery) return 0;
  looked_ = clock.now();
  std::error_code ignored;
  if (std::filesystem::remove(file_, ignored)) by_file_ = SIGTERM;
  return by_file_;
}

}  // namespace lockstep::train
