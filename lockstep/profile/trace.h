#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/join.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/run/trace.h"
#include "lockstep/task/tally.h"

namespace lockstep::profile {

// Writes what each step computed (run/trace.h).
//
// It is slow: every step waits for the device and for the disk. Expects
// train.log_every=1: the loss is that of the steps since the last report.
//
// Collective: every rank of the world has one, and calls all of this.
// Lifetime:   the model, the data set, the world and the strategy outlive it.
// Memory:     parameters that are sharded are made whole one after the other; rank 0
//             keeps copies of all until they are written.
class Trace {
 public:
  struct Subject {
    models::Model& model;
    const data::Dataset& dataset;
    comm::World& world;
    parallel::Strategy& strategy;
  };
  // Make it when all ranks have the weights that they start from. From then on the
  // gradient of an injection is scaled inside backward, before it can be exchanged.
  Trace(run::TraceRequest request, const Subject& subject);

  // Call it when gradients are summed over the ranks, and not yet applied.
  void exchanged();

  // Call it when the parameters are updated.
  void updated(const data::Batch& batch, double lr, const task::Tally& tally);

 private:
  void inject() const;
  void write_batch(const data::Batch& batch) const;
  void write_hash() const;
  void add_parameters();  // and hashes them
  void add(const std::string& name, const torch::Tensor& tensor);

  run::TraceRequest request_;
  models::Model& model_;
  const data::SampleSpec& spec_;
  comm::World& world_;
  parallel::Strategy& strategy_;
  std::int64_t step_ = 0;
  std::uint64_t hash_ = 0;                                      // of the parameters
  std::vector<std::pair<std::string, torch::Tensor>> tensors_;  // of this step; rank 0
};

}  // namespace lockstep::profile
