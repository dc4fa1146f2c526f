#pragma once

#include <memory>

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/detail/batch_statistics.h"

namespace lockstep::parallel::detail {

// The ranks that share statistics. Owned by a SyncBatchNorm, its scopes and graphs.
class SyncedRanks : public c10::DebugInfoBase,
                    public std::enable_shared_from_this<SyncedRanks> {
 public:
  SyncedRanks(const torch::nn::Module& module, comm::Communicator& data);

  int size() const noexcept { return communicator_ ? communicator_->size() : 1; }
  bool is_training() const noexcept { return module_.is_training(); }

  // Returns (ranks, n), the (n) of every rank.
  torch::Tensor gather(const torch::Tensor& mine) const;
  void sum(const torch::Tensor& values) const;

 private:
  const torch::nn::Module& module_;
  std::unique_ptr<comm::Communicator> communicator_;  // none for a single rank
};

struct BatchNormArguments {
  BatchNormOptions options;
  std::shared_ptr<SyncedRanks> ranks;
};

// Returns BatchNorm of a batch in training, over the ranks. Collective.
torch::Tensor synced_batch_norm(const torch::Tensor& input, const Affine& affine,
                                const BatchNormArguments& arguments);

}  // namespace lockstep::parallel::detail
