#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/votes.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/stage.h"
#include "lockstep/memory/offload.h"
#include "lockstep/models/dropout.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/precision/policy.h"
#include "lockstep/profile/pass_event.h"
#include "lockstep/task/tally.h"
#include "lockstep/task/task.h"

namespace lockstep::train {

// The forward passes of a model in a policy's precision.
class Forward {
 public:
  // Lifetime: the model outlives it.
  Forward(models::Model& model, const precision::Policy& policy);

  // Takes the tensors that the model looks at.
  Named operator()(const Named& staged);
  // For a model with its own backward: returns outputs from which a graph begins.
  Named kept(const Named& staged);
  // For one that computes its loss, too: returns the sum.
  torch::Tensor loss(const Named& staged, const models::OwnBackward::ClassLoss& loss);

 private:
  const Named& inputs_of(const Named& staged);

  models::Model& model_;
  precision::Policy policy_;
  std::vector<std::string> names_;  // inputs of the model
  Named inputs_;
};

// One step of the optimizer: forward and backward over the micro-batches of this rank's
// share. Each loss is the sum over its targets divided by what they weigh in the global
// batch, so how it is cut, into micro-batches or over ranks, does not matter: the
// strategy sums the gradients. Their weight is their number where every one counts;
// else the task says what this rank's weigh, and the ranks add that up.
//
// Collective: backward(), where the task weighs targets.
class Step {
 public:
  struct Parts {
    std::shared_ptr<models::Model> model;
    std::shared_ptr<const task::Task> task;
    parallel::Strategy& strategy;
    precision::Policy policy;
    data::SampleSpec spec;
    std::int64_t micro_batch = 1;
    std::shared_ptr<models::SamplePass> pass = nullptr;  // begun for each of them
    comm::Communicator* data = nullptr;  // over which weights are summed
    std::shared_ptr<memory::Offload> offload =
        nullptr;  // store of activations; may be none
    std::function<void(profile::PassEvent)> observe =
        {};  // told of every pass; may be empty
  };
  explicit Step(Parts parts);

  // The numbers of a step beside its batch.
  struct Numbers {
    double loss_scale = 1;
    std::int64_t step = 0;  // from 0 on: coefficients of losses may follow it
    // What the targets of all ranks weigh, if they have told each other (weights_of());
    // else they do so in backward().
    std::optional<comm::Weights> weights = {};
  };

  // Adds to `tally`. Does not wait for the device. The strategy's begin_step(),
  // finish() and update() are left to the caller, who passes the loss scale to
  // update().
  void backward(const data::Batch& batch, task::Tally& tally, const Numbers& numbers);
  void backward(const data::Batch& batch, task::Tally& tally) {
    backward(batch, tally, Numbers());
  }

  // Returns what the targets of a share weigh, whose tensors are all on the host; none
  // where every one counts the same, or where there are too many losses for a ballot.
  std::optional<comm::Weights> weights_of(const data::Batch& batch) const;

  // Returns whether there are more weights than ballots have room for, so that
  // backward() adds them up by a collective.
  bool sums_weights() const;

  // These are for a CUDA graph that holds backward(). words_of() returns what changes
  // from step to step, as words of eight bytes, the same number for batches of one
  // size; nothing if the ranks would have to tell each other. The other sets the GPU
  // memory where backward() reads them instead (undefined: no longer).
  std::optional<std::vector<std::uint64_t>> words_of(const data::Batch& batch,
                                                     const Numbers& numbers) const;
  void use_words(const torch::Tensor& words);

  // Sets how many samples go through the model at once; not more than at first.
  void set_micro_batch(std::int64_t size);
  std::int64_t micro_batch() const noexcept { return parts_.micro_batch; }

  // Returns whether all ranks make as many passes of a batch as its largest share
  // needs.
  bool passes_match() const;

  // Returns the number of micro-batches of a batch, for Strategy::begin_step().
  std::int64_t num_passes(const data::Batch& batch) const;

 private:
  // The divisor of a summed loss.
  struct Divisor {
    double count = 1;      // of the targets of the global batch
    torch::Tensor weight;  // float64: what they weigh; undefined: their number
  };
  using Divisors = c10::SmallVector<Divisor, 4>;
  Divisors divisors_of(const data::Batch& batch,
                       const std::optional<comm::Weights>& weights);
  void sum_weights(const data::Batch& batch);
  // Writes this rank's part of the weights into weights_.
  void weigh(const data::Batch& batch);
  const Named& fields_of(const data::Batch& batch, std::int64_t count);

  // Returns a loss as if every target weighed what they weigh in the mean: such sums
  // are divided by the number of targets of the first loss, here and in the tally.
  torch::Tensor weighed(const torch::Tensor& sum, std::size_t loss,
                        const Divisors& divisors) const;
  torch::Tensor total_of(const task::Sums& weighed, std::int64_t step) const;
  // Returns the mean loss that is propagated.
  torch::Tensor mean_of(const torch::Tensor& total, double count,
                        double loss_scale) const;
  bool weighs() const;
  // Returns what a sum of the only loss is multiplied by.
  torch::Tensor scale_of(const Divisors& divisors, const Numbers& numbers) const;
  // One micro-batch, while it is computed.
  struct MicroBatch {
    const Named& staged;
    torch::Tensor targets;  // of a loss that the model computes; undefined: the task
    torch::Tensor scale;    // of that loss
    Named outputs;          // else
    task::Sums losses;
  };
  MicroBatch compute(const Named& staged, const torch::Tensor& scale);
  void propagate(const torch::Tensor& loss, const MicroBatch& micro, bool last);

  void tell(profile::PassEvent pass) const {
    if (parts_.observe) parts_.observe(pass);
  }

  Parts parts_;
  const std::int64_t largest_;  // micro-batch
  const bool by_hand_;          // the model computes its gradients itself
  const bool has_loss_;         // and may compute the loss
  const std::vector<std::string> task_fields_;
  Forward forward_;
  data::BatchStage stage_;
  Named fields_;              // of a whole share, for the weights
  torch::Tensor weights_;     // made once, when the first batch has come
  std::vector<bool> weighs_;  // by loss
  torch::Tensor numbers_;     // of a graph: factor, coefficients and weights; float64
};

// Puts the weights of convolutions into the model's memory format.
void use_layout(models::Model& model);

}  // namespace lockstep::train
