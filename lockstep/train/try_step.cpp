#include "lockstep/train/try_step.h"

#include "lockstep/comm/extremes.h"
#include "lockstep/memory/out_of_memory.h"
#include "lockstep/task/tally.h"

namespace lockstep::train {

bool try_step(const StepTrial& trial, std::int64_t size) {
  const auto device = trial.world.data().device();
  task::Tally tally(trial.task, device);
  bool fits = true;
  data::Batch batch;
  try {
    batch = data::made_up_batch(trial.spec, size, device);
    batch.global_size = size * trial.world.size();
  } catch (const std::exception& error) {
    if (!memory::is_out_of_memory(error)) throw;
    fits = false;
  }
  // A step may ask the other ranks for what targets weigh: all begin it, or none.
  if (comm::gather_extremes(fits ? 1 : 0, trial.world.cpu()).smallest == 0)
    return false;
  trial.step.set_micro_batch(size);
  trial.strategy.begin_step(trial.step.num_passes(batch));
  try {
    trial.step.backward(batch, tally);
    tally.means();  // waits for the device
  } catch (const std::exception& error) {
    if (!memory::is_out_of_memory(error)) throw;
    fits = false;
  }
  trial.strategy.finish(/*failed=*/!fits);
  return fits;
}

}  // namespace lockstep::train
