#pragma once

#include <torch/torch.h>

namespace lockstep {

// The destination of gradients that are computed without autograd: straight into the
// memory from which they are exchanged. Its owner (parallel::Engine) makes one for each
// pass.
//
//   const auto place = sink.destination_of(weight);
//   if (place.adds) place.memory.addmm_(dy.t(), x);  // beta 1: earlier micro-batches
//   else at::mm_out(place.memory, dy.t(), x);        // beta 0
//   sink.ready(weight);                              // may travel from now on
//
// Call it in the order of a backward pass: the first ready gradient travels first,
// while the rest is computed.
class GradientSink {
 public:
  struct Destination {
    // The shape and the strides of the parameter. Undefined: it is not trained, and its
    // gradient is not needed.
    torch::Tensor memory;
    bool adds = false;  // it holds a part of the sum already; else it is written over
  };

  virtual ~GradientSink() = default;

  // `parameter` is one of the module's own.
  virtual Destination destination_of(const torch::Tensor& parameter) = 0;
  // Marks its gradient as complete for this pass. Call it once a pass.
  virtual void ready(const torch::Tensor& parameter) = 0;
};

}  // namespace lockstep
