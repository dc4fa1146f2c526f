#pragma once

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
// Collective: the constructor, gather(). Buckets are gathered in the same order on
//             every rank.
// Lifetime:   the communicator outlives it.
class ShardedValues {
 public:
  // Takes the parameters' values, rank 0's on every rank, and frees all buckets.
  // Buckets are counted as owned_shards() does.
  ShardedValues(const std::vector<Parameter>& parameters,
                const std::vector<Group>& groups, comm::Communicator& data);

  std::size_t num_buckets() const noexcept { return buckets_.size(); }
  // Returns this rank's elements of a bucket.
  torch::Tensor& shard(std::size_t bucket) { return buckets_[bucket].shard; }

  // Gives a bucket memory and starts to fill it. Its parameters have their values when
  // the result has been waited for.
  comm::Pending gather(std::size_t bucket);
  void free(std::size_t bucket);
  bool is_whole(std::size_t bucket) const { return buckets_[bucket].whole_now; }

  std::int64_t num_bytes(std::size_t bucket) const;  // as a whole
  std::size_t bucket_of(std::size_t parameter) const { return bucket_of_[parameter]; }

 private:
  struct BucketValues {
    torch::Tensor whole;  // its storage is empty while the bucket is freed
    torch::Tensor shard;
    bool whole_now = true;
  };

  comm::Communicator& data_;
  std::vector<BucketValues> buckets_;
  std::vector<std::size_t> bucket_of_;  // by parameter
};

}  // namespace lockstep::parallel::detail
