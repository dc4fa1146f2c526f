#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/data/loader.h"
#include "lockstep/parallel/balance.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/profile/profiler.h"
#include "lockstep/train/report.h"
#include "lockstep/train/step.h"
#include "lockstep/train/window.h"

namespace lockstep::train {

// Keeps what ranks did between two reports, and draws conclusions: metrics, the rank
// that others waited for, whether the loader is too slow, new shares of the batch.
//
// Collective: report().
class Progress {
 public:
  struct Parts {
    const config::WatchConfig& watch;
    const config::ParallelConfig& parallel;
    comm::World& world;
    Reporter& reporter;
    data::Loader& loader;
  };
  explicit Progress(const Parts& parts);

  // Leaves out time that is not training's, before the first step for instance.
  void skip(SteadyTime::duration time) { begin_ += time; }
  void start(SteadyTime now) { begin_ = now; }

  void step(const data::Batch& batch, const parallel::ExchangeTimes* times);

  // The position of a run at a report.
  struct At {
    std::int64_t step = 0;
    std::int64_t total_steps = 0;
    double epoch = 0;
    double lr = 0;
    std::optional<double> gradient_norm;
    std::int64_t targets_per_sample = 1;
    bool targets_are_tokens = false;
    std::optional<profile::Profiler::Passes> passes;  // since the last report
    std::optional<memory::DeviceMemory> memory;       // else what the device says
  };
  // Returns the numbers of all ranks since the last report; waits for the device.
  TrainReport report(const At& at, task::Tally& tally);

 private:
  // The reports since the last judgement, put together.
  struct Period {
    std::int64_t steps = 0;
    double seconds = 0;
    std::vector<RankWindow> ranks;
  };

  void judge(const TrainReport& report);
  void name_straggler(const TrainReport& report) const;
  void warn_of_waiting(const TrainReport& report) const;
  void warn_of_skipped();
  void balance(const TrainReport& report);

  const config::WatchConfig& watch_;
  comm::World& world_;
  Reporter& reporter_;
  data::Loader& loader_;
  std::optional<parallel::Balance> balance_;

  SteadyTime begin_;  // of the window; moved on by what is not training
  std::int64_t steps_ = 0;
  std::int64_t batches_ = 0;  // since the first step
  double waited_before_ = 0;
  std::int64_t skipped_before_ = 0;
  RankWindow window_;
  Period period_;
};

}  // namespace lockstep::train
