#pragma once

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
};

}  // namespace lockstep::models
