#pragma once

#include <cstdint>
#include <string>

#include "lockstep/data/named.h"
#include "lockstep/models/gradient_sink.h"

namespace lockstep::models {

// A model that computes its gradients itself, without autograd's graph. Everything
// around it (buckets, exchange, accumulation, clipping, the loss) is as with autograd.
class OwnBackward {
 public:
  virtual ~OwnBackward() = default;

  // Computes Model::forward_named() without autograd and keeps the values that
  // backward() needs.
  virtual Named forward_kept(const Named& inputs) = 0;

  // `gradients` are those of the loss by each output of the last forward_kept(). Every
  // trained parameter's goes into the sink.
  virtual void backward(const Named& gradients, GradientSink& sink) = 0;

  // A model that computes a plain cross-entropy in its pass, too, so that no outputs
  // leave it: forward_loss() and backward_loss() then take the place of the two above,
  // where the task has such a loss.
  virtual bool has_loss() const noexcept { return false; }
  struct ClassLoss {
    torch::Tensor targets;  // int64, one after the other; no class: it does not count
    torch::Tensor scale;    // one float on the device: what the loss is multiplied by
  };
  // Returns the sum over the targets that count, in float and without the scale.
  virtual torch::Tensor forward_loss(const Named& inputs, const ClassLoss& loss);
  virtual void backward_loss(GradientSink& sink);

  // Gives back memory that is kept from pass to pass, between two passes: the next one
  // may be of a smaller batch. What a CUDA graph holds stays.
  virtual void release_memory() {}

  // Chooses algorithms by measuring, for batches of so many samples of this shape, if
  // that has not been done; a pass does it else. Once training has begun.
  virtual void prepare(std::int64_t /*batch*/, at::IntArrayRef /*sample*/) {}
  // The algorithms that were chosen, as text to be kept for this machine. What is given
  // takes the place of what was chosen, and is not measured again: so a second run has
  // the bits of the first, and all ranks compute alike. "": there are none.
  virtual std::string choices() const { return ""; }
  virtual void use_choices(const std::string&) {}
};

}  // namespace lockstep::models
