#pragma once

#include <filesystem>
#include <optional>

#include "lockstep/base/clock.h"
#include "lockstep/train/stop.h"

namespace lockstep::train {

// All that can ask a run to stop: a signal; on rank 0 also a file `stop` in the run
// directory, which is removed, and the end of the job that a batch system has told.
class StopSources {
 public:
  struct Options {
    const StopRequest& signals;
    std::filesystem::path file;
    std::optional<WallTime> job_end;
    bool is_first = true;  // rank 0
  };
  explicit StopSources(const Options& options)
      : signals_(options.signals),
        file_(options.file),
        job_end_(options.job_end),
        is_first_(options.is_first) {}

  // Sets the time that a last checkpoint is expected to take: the end of the job is
  // seen so much earlier, and a minute at least.
  void leave_room(std::chrono::duration<double> room) { room_ = room; }

  // Returns the signal, or the one that a user would have sent; 0: none. Once asked,
  // always asked: a ballot may have to be cast again.
  int asked();

 private:
  const StopRequest& signals_;
  const std::filesystem::path file_;
  const std::optional<WallTime> job_end_;
  const bool is_first_;
  std::chrono::duration<double> room_{0};
  SteadyTime looked_;  // for the file
  int by_file_ = 0;
};

}  // namespace lockstep::train
