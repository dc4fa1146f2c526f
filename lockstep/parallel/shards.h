#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/parallel/layout.h"
#include "lockstep/parallel/stages.h"

namespace lockstep::parallel {

// A piece of the flat buffers of a group.
struct Shard {
  std::size_t group = 0;
  std::int64_t offset = 0, size = 0;  // elements

  torch::Tensor of(const torch::Tensor& flat) const {
    return flat.narrow(0, offset, size);
  }
};

// One of the ranks that share the buffers.
struct RankIndex {
  int rank = 0, ranks = 1;
};

// Returns a rank's part of a bucket: they are all of one size, since plan_layout() pads
// buckets for it.
Shard shard_of(std::size_t group, const Bucket& bucket, const RankIndex& index);

// Returns what a rank changes: whole buffers, or its shard of every bucket, in the
// order of groups and buckets.
std::vector<Shard> owned_shards(const std::vector<Group>& groups, const Stage& stage,
                                const RankIndex& index);

}  // namespace lockstep::parallel
