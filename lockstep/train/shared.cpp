#include "lockstep/train/shared.h"

#include "lockstep/base/error.h"
#include "lockstep/data/open.h"

namespace lockstep::train {
namespace {

// What the model learns from is what it is tested on.
void check_alike(const data::Dataset& train, const data::Dataset& eval) {
  if (train.spec().shape != eval.spec().shape) {
    throw Error(Fault::io, "data: training samples have shape ",
                c10::IntArrayRef(train.spec().shape), ", test samples ",
                c10::IntArrayRef(eval.spec().shape),
                "; they are not of one data set: check data.dir");
  }
  if (eval.spec().num_classes > train.spec().num_classes) {
    throw Error(Fault::io, "data: the test samples have ", eval.spec().num_classes,
                " classes, the training samples only ", train.spec().num_classes,
                "; check data.dir, or raise data.train_samples");
  }
}

}  // namespace

std::unique_ptr<Shared> open_shared(const config::Config& config, int ranks) {
  auto shared = std::make_unique<Shared>();
  shared->ranks = ranks;
  auto parts = data::open_parts(config);
  shared->train_data = std::move(parts.train);
  shared->eval_data = std::move(parts.eval);
  check_alike(*shared->train_data, *shared->eval_data);
  return shared;
}

}  // namespace lockstep::train
