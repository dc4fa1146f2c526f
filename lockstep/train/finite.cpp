#include "lockstep/train/finite.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::train {

void check_finite(const SeenLoss& seen, parallel::Strategy& strategy) {
  if (std::isfinite(seen.loss)) return;
  const auto bad = parallel::bad_gradients(strategy);  // all ranks see this loss
  const bool telling = !bad.empty() && bad.size() < strategy.parameters().size();
  throw Error(Fault::diverged, "train: the loss is ", seen.loss, " by step ", seen.step,
              seen.rank == kSomeRank ? " (some rank" : str(" (rank ", seen.rank),
              telling ? ", bad gradients: " + text::join(bad, ", ") : "",
              "); lower optim.lr (now ", seen.lr,
              ") or lengthen schedule.warmup_steps");
}

}  // namespace lockstep::train
