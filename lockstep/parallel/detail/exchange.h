#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <c10/core/Event.h>
#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/detail/flat_buffers.h"
#include "lockstep/parallel/detail/stamps.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/shards.h"

namespace lockstep::parallel::detail {

using Flags = std::vector<char>;  // by parameter; not bits, which cost more to read

// The sums of the buckets of one layout: started when a bucket is full, always in the
// same order, and waited for together.
class Exchange {
 public:
  // Puts the gradients of these parameters into the bucket, where they are not yet.
  using Collect = std::function<void(const std::vector<std::size_t>& parameters)>;

  struct Parts {
    FlatBuffers& buffers;
    comm::Communicator& data;
    comm::Communicator& sharers;  // of a whole: all ranks, or those of a group
    comm::Communicator* across;  // ranks of other groups with this one's shard, or null
    const std::vector<std::size_t>& order;  // in which the layout was planned
    const EngineOptions& options;
    Collect collect;  // called before a bucket is sent
  };
  explicit Exchange(Parts parts);

  // Begins a pass.
  void begin();

  // Call it before a gradient is added to. If its bucket holds a sum already, of an
  // earlier pass of this step, that is put aside, so that it is not summed again.
  void stash(std::size_t parameter);
  // Returns what was put aside of one gradient; a zero if nothing was.
  torch::Tensor stashed(std::size_t parameter) const;
  // Drops the gradient that was put aside. Returns whether there was one.
  bool drop_stash(std::size_t parameter);

  bool has_arrived(std::size_t parameter) const { return arrived_[parameter] != 0; }
  // Returns whether the bucket of a gradient is on its way already.
  bool has_left(std::size_t parameter) const { return work_of_[parameter] < next_; }

  // Marks a gradient as ready: starts the sums that have become possible. `used` says
  // which parameters this rank has used since gradients were last zeroed. Never waits.
  void ready(std::size_t parameter, const Flags& used);

  // Starts the buckets up to that of this parameter, zeros where nothing was computed.
  void start_through(std::size_t parameter, const Flags& used);

  // Starts what is left, zeros where nothing was computed. With `as_if_used` this rank
  // does not report what it has not used. Never waits.
  void start_rest(const Flags& used, bool as_if_used);

  // Waits for all. Collective.
  void complete();

  // Starts to count who has not used what, where that is not known from the buckets;
  // start_rest() does, unless buckets are pooled: there a step has several passes.
  void start_counts(const Flags& used, bool as_if_used);
  void wait_for_counts();

  // Return, where buckets are pooled (Stage::shards_gradients()): this rank's shard of
  // the sums, by index in owned_shards(); and the place of a gradient in its bucket,
  // while that is being sent.
  const torch::Tensor& shard_sum(std::size_t index) const { return shard_sums_[index]; }
  torch::Tensor view_of(std::size_t parameter) const;

  // Returns how many ranks have not used each parameter, after complete(). On several
  // GPUs they are of the pass before, so nothing waits; none at first.
  const std::vector<int>& absences(const Flags& used, bool as_if_used);
  // Returns how many ranks were counted.
  int voters() const { return has_peers_counts() ? data_.size() : 1; }
  // Sets whether ranks tell each other at all what they have used.
  void tell_absences(bool on) { telling_ = on; }

  // These record that the buckets hold sums, or no longer do.
  void remember_sums();
  void forget_sums();

  Stamps& stamps() noexcept { return stamps_; }
  void observe(ExchangeObserver* observer) noexcept { observer_ = observer; }

 private:
  struct Work {
    std::size_t group = 0;
    std::size_t index = 0;  // in owned_shards(), if ranks have shards
    Bucket bucket;
    Shard shard;                         // of this rank, within the bucket
    torch::Tensor gradients;             // view of the flat buffer, or of a slot
    std::vector<std::int64_t> counters;  // places in it, by parameter
    torch::Tensor device_counters;       // the same as indices on a GPU
    std::vector<std::size_t> parameters;
    std::size_t missing = 0;  // gradients that are not there yet
    bool holds_sum = false;
    bool seen = false;     // by the observer, to have arrived
    torch::Tensor aside;   // sum of earlier passes of this step
    torch::Tensor wire;    // the data that travels, if not the gradients themselves
    torch::Tensor counts;  // of a GPU: what the counters were after the sum
    comm::Pending pending;
    bool travels = false;  // it is in a slot of the pool
  };

  // Memory for one bucket of a group at a time.
  struct PoolSlot {
    torch::Tensor memory;
    std::optional<std::size_t> user = {};  // of works_
  };

  void add_work(std::size_t group, const Bucket& bucket);
  void put_aside(Work& work);
  void start(std::size_t index, const Flags& used, bool as_if_used);
  void zero_what_is_missing(Work& work, const Flags& used, bool as_if_used) const;
  void send(Work& work);
  void make_pool();
  void take_slot(std::size_t index);
  void zero_gaps(const Work& work) const;
  void add_to_shard(Work& work);
  void read_counters(Work& work);
  void finish(Work& work);
  void end_sum(Work& work);
  void start_across(Work& work);
  void start_across_through(std::size_t index);
  void start_across_if_possible(std::size_t index);
  void end_across(Work& work);
  void tell_of_arrivals();
  // Returns whether a sum over these ranks is made of what all of them have.
  bool gathers(const comm::Communicator& ranks) const;
  torch::Dtype wire_type(const torch::Tensor& gradients) const;
  bool has_peers_counts() const;
  bool counts_in_buckets() const { return has_peers_counts() && !scatters_; }
  torch::Tensor all_counts() const;
  torch::Tensor late_counts();

  FlatBuffers& buffers_;
  comm::Communicator& data_;
  comm::Communicator& sharers_;
  comm::Communicator* const across_;
  const EngineOptions& options_;
  const Collect collect_;
  const bool scatters_;      // a rank gets the sum of its shard of a bucket only
  const bool pools_;         // buckets have memory while they travel
  std::vector<Work> works_;  // in the order in which they are started
  std::vector<std::size_t> work_of_;  // by parameter
  Flags arrived_;                     // by parameter, in this pass
  std::size_t next_ = 0;              // the next one to start
  std::size_t next_across_ = 0;       // the next one to be summed over the groups
  std::optional<c10::Stream> side_;   // of a GPU: on which one sum follows another
  bool telling_ = true;
  bool waits_for_counts_ = true;  // of a GPU: the first ones are read at once
  std::vector<std::vector<PoolSlot>> pool_;  // by group; slots take turns
  std::vector<std::size_t> turn_;            // by group
  std::vector<torch::Tensor> shard_sums_;
  const std::vector<int> none_;
  std::vector<int> absences_;  // by parameter, of tensors of the host
  // These are used where a rank does not see all counters: they travel on their own.
  torch::Tensor counts_;  // by parameter
  comm::Pending counts_pending_;
  bool counts_started_ = false;
  std::optional<c10::Event> copied_;  // of a GPU: late_counts_ are on the host
  torch::Tensor late_counts_;
  Stamps stamps_;
  ExchangeObserver* observer_ = nullptr;
};

}  // namespace lockstep::parallel::detail
