#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/train/report.h"
#include "lockstep/train/shared.h"
#include "lockstep/train/stop.h"

namespace lockstep::train {

// Trains what `config`, in which no knob is `auto`, describes, and returns what came of
// it; the run directory gets the metrics, the events and the final weights.
//
// Same config, same machine, same number of threads and ranks: the same losses to the
// last bit on a CPU.
//
// Collective: the ranks of `world` share each global batch, and leave together. The
// device is that of world.data().
Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop, comm::World& world,
             const Extras& extras = {});

// The same for one of several ranks that are threads of this process.
Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop, comm::World& world,
             Shared& shared);

// The same, step by step, for whoever decides what comes between (fit.h). Begin, then
// step until it is over, then finish.
//
// Collective: all but the getters.
class Loop {
 public:
  virtual ~Loop() = default;

  virtual void begin() = 0;
  virtual bool is_over() const = 0;
  // One step and what the config says is due after it. Whether an epoch ends with it.
  virtual bool step() = 0;
  // What the config has not asked for: an evaluation, a checkpoint (its directory).
  virtual Means validate() = 0;
  virtual std::string save() = 0;
  virtual Result finish() = 0;

  virtual const Result& result() const = 0;  // so far
};

// Lifetime: all arguments outlive it.
std::unique_ptr<Loop> make_loop(const config::Config& config,
                                const monitor::RunDirectory& run, Reporter& reporter,
                                const StopRequest& stop, comm::World& world,
                                Shared& shared);

}  // namespace lockstep::train
