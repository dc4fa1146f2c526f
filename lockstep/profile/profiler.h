#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <torch/torch.h>

#include "lockstep/base/clock.h"
#include "lockstep/comm/join.h"
#include "lockstep/config/profile.h"
#include "lockstep/monitor/timeline.h"
#include "lockstep/parallel/observer.h"
#include "lockstep/profile/detail/moments.h"
#include "lockstep/profile/pass_event.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::profile {

// Times the phases of steps. On a CPU it times every step, for the means of a report: a
// few looks at a clock. Of profiled steps it keeps all, with what travels between
// ranks; on a GPU by events, which are read when the run is over, so that nothing waits
// for them.
//
// Threads:  that of the rank, but for what an ExchangeObserver is told.
// Lifetime: the exchange that it observes outlives it.
class Profiler : public parallel::ExchangeObserver {
 public:
  using Phase = monitor::StepPhase;

  Profiler(const config::ProfileConfig& config, const torch::Device& device,
           parallel::ExchangeMonitor* exchange);
  ~Profiler() override;
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // `step` counts from 1.
  void begin_step(std::int64_t step);
  // Counts the time since the last call, or since the step began, as `phase`.
  void end_phase(Phase phase);
  void skip_phase();                    // it was none of them
  void passed(PassEvent pass);          // of a micro-batch
  void end_step(std::int64_t samples);  // of this rank

  bool is_wanted() const noexcept { return range_.has_value(); }
  bool is_profiling() const noexcept { return profiling_; }  // this step

  // The seconds since the last call; none on a GPU, where they are not known.
  struct Passes {
    double forward = 0;
    double backward = 0;
  };
  std::optional<Passes> take_passes();

  // Returns what was timed, on the clock of rank 0; whole on rank 0 only. Nothing if no
  // step was. Waits for the device. Collective.
  std::optional<monitor::Timeline> gather(comm::World& world);

  void started(const parallel::Parcel& parcel) override;
  void arrived(const parallel::Parcel& parcel) override;

 private:
  using Span = monitor::Span;
  // A span whose ends are moments.
  struct Record {
    Span span;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  void begin_profile();
  void observe(parallel::ExchangeObserver* observer) {
    if (exchange_ != nullptr) exchange_->observe(observer);
  }
  void add(const Span& span, std::size_t begin, std::size_t end);
  std::vector<Span> settled();

  const std::optional<config::StepRange> range_;
  const torch::Device device_;
  parallel::ExchangeMonitor* exchange_;  // may be null
  bool in_step_ = false;    // batches are also computed to see whether they fit
  bool profiling_ = false;  // this step
  std::int64_t step_ = 0;
  SteadyTime last_;  // on a CPU
  Passes passes_;
  detail::Moments moments_;
  std::size_t last_moment_ = 0, step_moment_ = 0;
  std::vector<Record> records_;
  std::vector<std::pair<parallel::Parcel, std::size_t>> under_way_;
  double cpu_begin_ = 0, cpu_end_ = 0;  // seconds of this process
};

// Writes trace.json into the run directory, by rank 0, if steps were profiled. Returns
// their means. Collective.
std::optional<monitor::PhaseSplit> save_profile(Profiler& profiler, comm::World& world,
                                                const run::RunDirectory& run);

// Returns by how much this rank's steady clock is ahead of rank 0's; 0 where the
// difference is within the error of the measurement, as on one host. Collective.
double clock_ahead(comm::Communicator& cpu);

}  // namespace lockstep::profile
