#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/loader.h"
#include "lockstep/models/dropout.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/precision/policy.h"
#include "lockstep/train/offload.h"

namespace lockstep::train {

// Sums over samples, kept on the device so that adding to them waits for nothing.
class Tally {
 public:
  explicit Tally(const torch::Device& device);

  void add(const torch::Tensor& loss_sum, const torch::Tensor& correct,
           std::int64_t count);
  void reset();

  // What it holds, for a checkpoint: tensors that are its own.
  const torch::Tensor& sums() const noexcept { return sums_; }
  std::int64_t& count() noexcept { return count_; }

  // What is added from now on can be taken back.
  void remember();
  void rewind();

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
  torch::Tensor remembered_sums_;
  std::int64_t remembered_count_ = 0;
};

// What the model sees of samples: normalised float32 from bytes and floats, into `out`,
// which is contiguous. REQUIRES: both on one device.
void normalize_into(torch::Tensor& out, const torch::Tensor& in,
                    const data::SampleSpec& spec);

// Brings the samples of a data set onto the device in the form the model sees, through
// buffers that are made once.
class InputStage {
 public:
  InputStage(data::SampleSpec spec, std::int64_t batch, torch::MemoryFormat format,
             const torch::Device& device);

  struct Samples {
    torch::Tensor inputs;   // (B, ...) float32, or tokens as they are
    torch::Tensor targets;  // (B) or (B, T) int64, or (B, classes) float32: shares
  };
  // Makes room for so many samples at once.
  void reserve(std::int64_t batch);

  // The tensors hold these values until the next call.
  Samples stage(const torch::Tensor& inputs, const torch::Tensor& targets);

 private:
  data::SampleSpec spec_;
  torch::MemoryFormat format_;
  torch::Device device_;
  torch::Tensor
      planes_;  // normalised, rows first; used where the format differs from it
  torch::Tensor inputs_;
};

// The boundaries of the passes of a micro-batch.
enum class Pass { forward_begins, backward_begins, ends };

// Loss summed over the targets and the number of right answers of one forward pass.
struct Outcome {
  torch::Tensor loss_sum;
  torch::Tensor correct;
  std::int64_t count = 0;  // of targets: samples, or tokens
  torch::Tensor logits;    // (count, classes), without gradients
  torch::Tensor answers;   // (count) int64: what would be right
};

// One step of the optimizer: forward and backward over the micro-batches of this rank's
// share. The loss is the sum over samples (or tokens) divided by their number in the
// global batch, so how it is cut, into micro-batches or over ranks, does not matter:
// the strategy sums the gradients. With weights of classes it is divided by the sum of
// the weights of the targets instead, as PyTorch's mean is; mixed samples have shares
// of classes and are counted, as there.
//
// Collective: backward(), with weights of classes.
class Step {
 public:
  struct Parts {
    std::shared_ptr<models::Model> model;
    parallel::Strategy& strategy;
    precision::Policy policy;
    data::SampleSpec spec;
    std::int64_t micro_batch = 1;
    std::shared_ptr<models::SamplePass> pass = nullptr;  // begun for each of them
    torch::Tensor class_weights = {};            // on the device; undefined: all alike
    comm::Communicator* data = nullptr;          // over which weights are summed
    std::shared_ptr<Offload> offload = nullptr;  // where activations wait; may be none
    std::function<void(Pass)> observe = {};      // told of every pass; may be empty
  };
  explicit Step(Parts parts);

  // Adds to `tally`. Does not wait for the device. The strategy's begin_step(),
  // finish() and update() are left to the caller, who tells update() by what the loss
  // was multiplied.
  void backward(const data::Batch& batch, Tally& tally, double loss_scale = 1);

  // How many samples go through the model at once; not more than at first.
  void set_micro_batch(std::int64_t size);
  std::int64_t micro_batch() const noexcept { return parts_.micro_batch; }

 private:
  // What a loss that is summed is divided by.
  struct Divisor {
    double count = 1;       // of the targets of the global batch
    torch::Tensor weights;  // float64: the sum of their weights; undefined: count
  };
  Divisor divisor_of(const data::Batch& batch);

  void tell(Pass pass) const {
    if (parts_.observe) parts_.observe(pass);
  }

  Parts parts_;
  const std::int64_t largest_;  // micro-batch
  InputStage stage_;
  torch::Tensor weight_sum_;  // made once
};

// Puts the weights of convolutions into the model's memory format.
void use_layout(models::Model& model);

// The loss of a target is multiplied by the weight of its class, if there are weights.
Outcome forward(models::Model& model, const InputStage::Samples& samples,
                const precision::Policy& policy,
                const torch::Tensor& class_weights = {});

}  // namespace lockstep::train
