#pragma once

#include <cstdint>
#include <memory>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/loader.h"
#include "lockstep/models/model.h"
#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/precision/policy.h"

namespace lockstep::train {

// Sums over samples, kept on the device so that adding to them waits for nothing.
class Tally {
 public:
  explicit Tally(const torch::Device& device);

  void add(const torch::Tensor& loss_sum, const torch::Tensor& correct,
           std::int64_t count);
  void reset();

  struct Means {
    double loss = 0;
    double accuracy = 0;
    std::int64_t count = 0;
  };
  // Waits for the device.
  Means means() const;
  // Over the ranks of `cpu`. Collective.
  Means means(comm::Communicator& cpu) const;

 private:
  torch::Tensor sums_;  // loss, correct
  std::int64_t count_ = 0;
};

// Brings the samples of a data set onto the device in the form the model sees, through
// buffers that are made once.
class InputStage {
 public:
  InputStage(data::SampleSpec spec, std::int64_t batch, torch::MemoryFormat format,
             const torch::Device& device);

  struct Samples {
    torch::Tensor inputs;   // (B, ...) float32
    torch::Tensor targets;  // (B) int64
  };
  // The tensors hold these values until the next call.
  Samples stage(const torch::Tensor& inputs, const torch::Tensor& targets);

 private:
  data::SampleSpec spec_;
  torch::Device device_;
  torch::Tensor
      planes_;  // normalised, rows first; used where the format differs from it
  torch::Tensor inputs_;
};

// One step of the optimizer: forward and backward over the micro-batches of this rank's
// share, then the update. The loss is the sum over samples divided by the size of the
// global batch, so how it is cut, into micro-batches or over ranks, does not matter:
// between the two the gradients are summed over the ranks.
class Step {
 public:
  struct Parts {
    std::shared_ptr<models::Model> model;
    optim::FlatParameters& parameters;
    optim::Optimizer& optimizer;
    precision::Policy policy;
    data::SampleSpec spec;
    std::int64_t micro_batch = 1;
  };
  explicit Step(Parts parts);

  // Adds to `tally`. Do not wait for the device.
  void backward(const data::Batch& batch, Tally& tally);
  void update(double lr);

 private:
  Parts parts_;
  InputStage stage_;
};

// Puts the weights of convolutions into the model's memory format.
void use_layout(models::Model& model);

// Loss summed over the samples and the number of right answers of one forward pass.
struct Outcome {
  torch::Tensor loss_sum;
  torch::Tensor correct;
};
Outcome forward(models::Model& model, const InputStage::Samples& samples,
                const precision::Policy& policy);

}  // namespace lockstep::train
