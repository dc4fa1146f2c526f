#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/join.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/models/model.h"
#include "lockstep/monitor/trace.h"
#include "lockstep/train/step.h"

namespace lockstep::train {

// Writes what each step computed (monitor/trace.h). It looks at the module's own
// parameters and their grad(), so it does not know who exchanged them, or how.
//
// Slow: every step waits for the device and for the disk. Expects train.log_every=1:
// the loss is that of the steps since the last report.
//
// Collective: every rank of the world has one, and calls all of this.
// Lifetime:   the model, the data set and the world outlive it.
class Trace {
 public:
  // All ranks have the weights that they start from. From now on the gradient of an
  // injection is scaled inside backward, which is before anybody can exchange it.
  Trace(monitor::TraceRequest request, models::Model& model,
        const data::Dataset& dataset, comm::World& world);

  // The gradients are summed over the ranks, and not yet applied.
  void exchanged();

  // The parameters are updated.
  void updated(const data::Batch& batch, double lr, const Tally& tally);

 private:
  void inject() const;
  void write_batch(const data::Batch& batch) const;
  void write_hash() const;
  void add_parameters(bool gradients);

  monitor::TraceRequest request_;
  models::Model& model_;
  const data::SampleSpec& spec_;
  comm::World& world_;
  std::int64_t step_ = 0;
  std::vector<std::pair<std::string, torch::Tensor>> tensors_;  // of this step; rank 0
};

}  // namespace lockstep::train
