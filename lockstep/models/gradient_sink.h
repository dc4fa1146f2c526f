#pragma once

#include <torch/torch.h>

namespace lockstep {

// Where gradients go that somebody computes without autograd: straight into the memory
// from which they are exchanged. Its owner (parallel::Engine) makes one for each pass.
//
//   const auto place = sink.place_of(weight);
//   if (place.adds) place.memory.addmm_(dy.t(), x);  // beta 1: earlier micro-batches
//   else at::mm_out(place.memory, dy.t(), x);        // beta 0
//   sink.ready(weight);                              // may travel from now on
//
// In the order of a backward pass: what is ready first travels first, while the rest is
// computed.
class GradientSink {
 public:
  struct Place {
    // The shape and the strides of the parameter. Undefined: it is not trained, and
    // nobody wants its gradient.
    torch::Tensor memory;
    bool adds = false;  // it holds a part of the sum already; else it is written over
  };

  virtual ~GradientSink() = default;

  // `parameter` is one of the module's own.
  virtual Place place_of(const torch::Tensor& parameter) = 0;
  // Its gradient is there, complete for this pass. Once a pass.
  virtual void ready(const torch::Tensor& parameter) = 0;
};

}  // namespace lockstep
