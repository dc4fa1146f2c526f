#include "lockstep/train/shared.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/data/checked.h"
#include "lockstep/data/open.h"
#include "lockstep/data/subset.h"

namespace lockstep::train {
namespace {

// Throws if training and test samples are not of one kind. Numbers to be predicted may
// be larger in a test, and a data set need not say how many classes it has.
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

// Keeps the first samples only, for training and for evaluation.
void keep_first(Shared& shared, std::int64_t samples) {
  const std::shared_ptr<const data::Dataset> all = std::move(shared.train_data);
  std::vector<std::int64_t> first(
      static_cast<std::size_t>(std::min(samples, all->size())));
  std::iota(first.begin(), first.end(), std::int64_t{0});
  shared.train_data = data::subset(all, first);
  shared.eval_data = data::subset(all, std::move(first));
}

}  // namespace

memory::DeviceMemory memory_of(const torch::Device& device, const Shared& shared) {
  if (!device.is_cpu() || !shared.limit) return memory::memory_of(device);
  const auto& limit = *shared.limit;
  return {limit.used_bytes() / shared.ranks, limit.used_bytes() / shared.ranks,
          limit.limit_bytes(), limit.peak_bytes() / shared.ranks};
}

std::unique_ptr<Shared> open_shared(const config::Config& config, const RunHooks& hooks,
                                    int ranks) {
  auto shared = std::make_unique<Shared>();
  shared->ranks = ranks;
  shared->hooks = hooks;
  if (config.memory.host_limit > 0) shared->limit.emplace(config.memory.host_limit);
  LOCKSTEP_CHECK(!hooks.train_data == !hooks.eval_data);
  if (hooks.train_data) {
    shared->train_data = hooks.train_data;
    shared->eval_data = hooks.eval_data;
  } else {
    auto parts = data::open_splits(config);
    shared->train_data = std::move(parts.train);
    shared->eval_data = std::move(parts.eval);
  }
  check_alike(*shared->train_data, *shared->eval_data,
              config.task.name != config::TaskName::regression);
  if (const auto batches = config.train.overfit_batches; batches > 0) {
    keep_first(*shared, batches * config.batch.global.value());
  }
  // Only a task of the program's own knows what data it can learn from.
  if (!hooks.task) {
    shared->train_data = data::checked(std::move(shared->train_data), config.task);
    shared->eval_data = data::checked(std::move(shared->eval_data), config.task);
  }
  return shared;
}

}  // namespace lockstep::train
