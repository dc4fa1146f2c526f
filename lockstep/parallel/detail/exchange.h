#pragma once

#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/detail/flat_buffers.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::parallel::detail {

// The sums of the buckets of one layout: started when a bucket is full, always in the
// same order, and waited for together.
class Exchange {
 public:
  // `order` is that in which the layout was planned.
  Exchange(FlatBuffers& buffers, comm::Communicator& data,
           const std::vector<std::size_t>& order, const EngineOptions& options);

  void begin();

  // Before a gradient is added to: if its bucket holds a sum already, of an earlier
  // pass of this step, that is put aside, so that it is not summed again.
  void set_aside_sum_of(std::size_t parameter);
  // What was put aside of one gradient; a zero if nothing was.
  torch::Tensor set_aside_of(std::size_t parameter) const;

  // The gradient is there: starts the sums that have become possible. `used` says which
  // parameters this rank has used; it travels with the sum. Never waits.
  void ready(std::size_t parameter, const std::vector<bool>& used);

  // Starts what is left and waits for all. Collective.
  void finish(const std::vector<bool>& used);

  // How many ranks have used each parameter, after finish(). Of a GPU those of the pass
  // before, so that nothing waits for it; none in the first one.
  std::vector<int> users();

  // The buckets hold sums, or no longer do.
  void remember_sums();
  void forget_sums();

 private:
  struct Work {
    std::size_t group = 0;
    Bucket bucket;
    torch::Tensor gradients;  // view of the flat buffer
    torch::Tensor counters;   // indices into it
    std::vector<std::size_t> parameters;
    std::size_t missing = 0;  // gradients that are not there yet
    bool holds_sum = false;
    torch::Tensor aside;   // sum of earlier passes of this step
    torch::Tensor wire;    // what travels, where it is not the gradients themselves
    torch::Tensor counts;  // users of each parameter, after the sum
    comm::Pending pending;
  };

  void add_work(std::size_t group, const Bucket& bucket);
  void start(Work& work, const std::vector<bool>& used);
  void write_counters(Work& work, const std::vector<bool>& used) const;
  void complete(Work& work);
  void sum_in_rank_order(Work& work) const;
  bool gathers() const;

  FlatBuffers& buffers_;
  comm::Communicator& data_;
  const EngineOptions& options_;
  std::vector<Work> works_;           // in the order in which they are started
  std::vector<std::size_t> work_of_;  // by parameter
  std::vector<bool> arrived_;         // by parameter, in this pass
  std::size_t next_ = 0;              // the next one to start
  std::optional<c10::Event> copied_;  // of a GPU: late_counts_ are on the host
  torch::Tensor late_counts_;
};

}  // namespace lockstep::parallel::detail
