#include "lockstep/train/shared.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/checked.h"
#include "lockstep/data/open.h"
#include "lockstep/data/subset.h"

namespace lockstep::train {
namespace {

// What the model learns from is what it is tested on. Numbers that are to be predicted
// may be larger there, and a data set need not say how many classes it has.
void check_alike(const data::Dataset& train, const data::Dataset& eval,
                 bool has_classes) {
  if (train.spec().shape != eval.spec().shape) {
    throw Error(Fault::io, "data: training samples have shape ",
                c10::IntArrayRef(train.spec().shape), ", test samples ",
                c10::IntArrayRef(eval.spec().shape),
                "; they are not of one data set: check data.dir");
  }
  if (has_classes && train.spec().num_classes > 0 &&
      eval.spec().num_classes > train.spec().num_classes) {
    throw Error(Fault::io, "data: the test samples have ", eval.spec().num_classes,
                " classes, the training samples only ", train.spec().num_classes,
                "; check data.dir, or raise data.train_samples");
  }
}

// The first samples, for training and for evaluation.
void keep_first(Shared& shared, std::int64_t samples) {
  const std::shared_ptr<const data::Dataset> all = std::move(shared.train_data);
  std::vector<std::int64_t> first(
      static_cast<std::size_t>(std::min(samples, all->size())));
  std::iota(first.begin(), first.end(), std::int64_t{0});
  shared.train_data = data::subset(all, first);
  shared.eval_data = data::subset(all, std::move(first));
}

}  // namespace

DeviceMemory memory_of(const torch::Device& device, const Shared& shared) {
  if (!device.is_cpu() || !shared.limit) return memory_of(device);
  const auto& limit = *shared.limit;
  return {limit.used_bytes() / shared.ranks, limit.used_bytes() / shared.ranks,
          limit.limit_bytes(), limit.peak_bytes() / shared.ranks};
}

std::unique_ptr<Shared> open_shared(const config::Config& config, const Extras& extras,
                                    int ranks) {
  auto shared = std::make_unique<Shared>();
  shared->ranks = ranks;
  shared->extras = extras;
  if (config.memory.host_limit > 0) shared->limit.emplace(config.memory.host_limit);
  LOCKSTEP_CHECK(!extras.train_data == !extras.eval_data);
  if (extras.train_data) {
    shared->train_data = extras.train_data;
    shared->eval_data = extras.eval_data;
  } else {
    auto parts = data::open_parts(config);
    shared->train_data = std::move(parts.train);
    shared->eval_data = std::move(parts.eval);
  }
  check_alike(*shared->train_data, *shared->eval_data,
              config.task.name != config::TaskName::regression);
  if (const auto batches = config.train.overfit_batches; batches > 0) {
    keep_first(*shared, batches * config.batch.global.value());
  }
  // What a task of the program's own can learn from is known to it alone.
  if (!extras.task) {
    shared->train_data = data::checked(std::move(shared->train_data), config.task);
    shared->eval_data = data::checked(std::move(shared->eval_data), config.task);
  }
  return shared;
}

}  // namespace lockstep::train
