#pragma once

#include <memory>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/torch.h>

#include "lockstep/comm/communicator.h"

namespace lockstep::parallel {

namespace detail {
class SyncedRanks;
}

// Returns whether the module, or one inside it, is a BatchNorm. Ranks without samples
// then run their passes with an empty batch, since the others wait for them in each of
// these layers. A module that calls torch::batch_norm itself is not seen.
bool has_batch_norm(const torch::nn::Module& module);

// BatchNorm over the samples of all ranks.
//
// Nothing in the model changes: within a Scope, every call of batch_norm in training is
// dispatched to one with the statistics of all ranks (the forward() of
// torch::nn::BatchNorm2d is not virtual, so modules can not be replaced). Value,
// gradients and running statistics are those of BatchNorm on the ranks' batches one
// behind the other, if losses add up as engine.h says; the running statistics are the
// same bits on every rank. Statistics are float32 for half precision inputs. Shares may
// be unequal, or empty: a batch of size 0. InstanceNorm, and BatchNorm in eval mode,
// stay as they are and communicate nothing.
//
// LibTorch's own BatchNorm modules refuse a batch with one value a channel, as (1, C),
// before they ask the dispatcher; torch::batch_norm() does not, and with other ranks'
// samples it works. One value a channel on all ranks together is Fault::config, on
// every rank. So are second derivatives.
//
// Collective: the constructor; each forward pass through such a layer, and each
//             backward pass if its input needs a gradient. Every rank runs the same
//             number of them, in the same order.
// Threads:    a Scope belongs to the thread that made it, and to autograd's threads
//             while that thread runs a backward pass. Ranks may be threads, but not on
//             one GPU (Fault::config): autograd has one thread for it, which would wait
//             for itself.
// Lifetime:   the module outlives it and its scopes. Graphs made in a scope may outlive
//             both, but not the communicator.
class SyncBatchNorm {
 public:
  // Exchanges statistics over a communicator of its own, split from `data`, so that
  // they keep their order whatever else is exchanged meanwhile. `module` tells training
  // from eval where a layer keeps no running statistics.
  SyncBatchNorm(const torch::nn::Module& module, comm::Communicator& data);
  ~SyncBatchNorm();
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

  // Lives around forward passes, and around backward passes that compute a layer again
  // (activation checkpointing).
  class Scope {
   public:
    explicit Scope(const SyncBatchNorm& sync);

   private:
    c10::DebugInfoGuard ranks_;
    c10::impl::IncludeDispatchKeyGuard key_;
  };

 private:
  std::shared_ptr<detail::SyncedRanks> ranks_;
};

}  // namespace lockstep::parallel
