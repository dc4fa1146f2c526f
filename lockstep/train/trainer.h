#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/join.h"
#include "lockstep/config/resolved.h"
#include "lockstep/run/run_directory.h"
#include "lockstep/train/report.h"
#include "lockstep/train/shared.h"
#include "lockstep/train/stop.h"

namespace lockstep::train {

// The parts of a run that training works with. Lifetime: they outlive it.
struct RunParts {
  const run::RunDirectory& run;
  Reporter& reporter;
  const StopRequest& stop;
  comm::World& world;
};

// Trains what `config` describes, and returns the result; the run directory gets the
// metrics, the events and the final weights.
//
// The same config, machine and number of threads and ranks give the same losses to the
// last bit on a CPU.
//
// Collective: the ranks of the world share each global batch, and leave together. The
// device is that of world.data().
Result train(const config::Resolved& config, const RunParts& parts,
             const RunHooks& hooks = {});

// Does the same for one of several ranks that are threads of this process.
Result train(const config::Resolved& config, const RunParts& parts, Shared& shared);

// Trains step by step, for a caller that decides what comes between (api/fit.h). Begin,
// then step until it is over, then finish.
//
// Collective: all but the getters.
class Loop {
 public:
  virtual ~Loop() = default;

  virtual void begin() = 0;
  virtual bool is_over() const = 0;
  // Makes a step and what is due after it. Returns whether an epoch ends with it.
  virtual bool step() = 0;
  // These make what the config has not asked for: an evaluation, a checkpoint.
  virtual task::Means validate() = 0;
  virtual std::string save() = 0;
  virtual Result finish() = 0;

  virtual const Result& result() const = 0;  // so far
};

// Lifetime: all arguments outlive it.
std::unique_ptr<Loop> make_loop(const config::Resolved& config, const RunParts& parts,
                                Shared& shared);

}  // namespace lockstep::train
