#include "lockstep/config/run_length.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::config {

std::int64_t samples_per_epoch(std::int64_t num_samples, const EpochOptions& options) {
  if (num_samples <= 0) {
    throw Error(Fault::config,
                "data: the data set is empty; check data.dir and data.name");
  }
  auto samples = num_samples;
  if (options.drop_last) samples -= samples % options.batch;
  if (samples == 0) {
    throw Error(Fault::config, "data.drop_last: a batch has ", options.batch,
                " samples, the data set ", num_samples,
                ": there would be no batch; lower batch.global, or set "
                "data.drop_last=false");
  }
  const auto limit = options.limit_batches;
  return limit > 0 ? std::min(samples, limit * options.batch) : samples;
}

RunLength run_length(const Config& config, std::int64_t num_samples) {
  const auto batch = config.batch.global.value();
  const auto samples = samples_per_epoch(
      num_samples, {batch, config.data.drop_last, config.train.limit_train_batches});
  RunLength length;
  length.global_batch = batch;
  length.steps_per_epoch = (samples + batch - 1) / batch;
  const auto steps = config.train.steps.value();
  length.steps =
      steps > 0 ? steps : config.train.epochs.value() * length.steps_per_epoch;
  const auto few = config.train.fast_dev_run;
  length.last_step = few > 0 ? std::min(few, length.steps) : length.steps;
  return length;
}

}  // namespace lockstep::config
