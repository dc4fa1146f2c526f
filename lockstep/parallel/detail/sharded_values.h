#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/layout.h"
#include "lockstep/parallel/shards.h"

namespace lockstep::parallel::detail {

// The values of parameters of which a rank keeps its shards (Stage::shards_values()).
// Those of a bucket are whole while somebody has gathered it; parameters are views of
// that memory. One that is read while its bucket is freed has none.
//
// Collective: add(), gather(). Buckets are gathered in the same order on every rank.
// Lifetime:   the communicators outlive it.
class ShardedValues {
 public:
  struct Ranks {
    comm::Communicator& sharers;  // whose shards make a whole
    comm::Communicator& all;      // one of which has the values at first
  };
  explicit ShardedValues(const Ranks& ranks) : ranks_(ranks), data_(ranks.sharers) {}

  // Takes the parameters' values, rank 0's on every rank, and frees their buckets.
  // Parameters without memory get theirs by set(). Returns the number of the first
  // bucket; the others follow in the order of groups and their buckets.
  std::size_t add(const std::vector<Parameter>& parameters,
                  const std::vector<Group>& groups);

  std::size_t num_buckets() const noexcept { return buckets_.size(); }
  // Returns this rank's elements of a bucket.
  torch::Tensor& shard(std::size_t bucket) { return buckets_[bucket].shard; }

  // Gives a bucket memory and starts to fill it. Its parameters have their values when
  // the result has been waited for.
  comm::Pending gather(std::size_t bucket);
  void free(std::size_t bucket);

  // Puts this rank's part of a value into the shard of a parameter.
  void set(const torch::Tensor& parameter, const torch::Tensor& value);

  std::int64_t num_bytes(std::size_t bucket) const;  // as a whole
  bool has(const torch::Tensor& parameter) const;
  std::size_t bucket_of(const torch::Tensor& parameter) const;

 private:
  struct BucketValues {
    torch::Tensor whole;  // its storage is empty while the bucket is freed
    torch::Tensor shard;
    std::int64_t begin = 0;  // of the shard, in the bucket
    bool whole_now = true;
  };
  struct Place {
    std::size_t bucket = 0;
    std::int64_t offset = 0;  // in the bucket
  };

  void add_bucket(const std::vector<Parameter>& parameters, const Group& group,
                  const Bucket& bucket);

  const Ranks ranks_;
  comm::Communicator& data_;  // of the sharers
  std::vector<BucketValues> buckets_;
  std::unordered_map<const c10::TensorImpl*, Place> places_;  // of parameters
};

}  // namespace lockstep::parallel::detail
