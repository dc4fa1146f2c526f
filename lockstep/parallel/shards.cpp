#include "lockstep/parallel/shards.h"

#include "lockstep/base/error.h"

namespace lockstep::parallel {

Shard shard_of(std::size_t group, const Bucket& bucket, const RankIndex& index) {
  const auto length = bucket.end - bucket.begin;
  LOCKSTEP_CHECK(length % index.ranks == 0, length, " elements for ", index.ranks,
                 " ranks");
  const auto size = length / index.ranks;
  return {group, bucket.begin + index.rank * size, size};
}

std::vector<Shard> owned_shards(const std::vector<Group>& groups, const Stage& stage,
                                const RankIndex& index) {
  std::vector<Shard> owned;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (!stage.shards_update() || index.ranks == 1) {
      owned.push_back({g, 0, groups[g].numel});
      continue;
    }
    for (const auto& bucket : groups[g].buckets) {
      owned.push_back(shard_of(g, bucket, index));
    }
  }
  return owned;
}

}  // namespace lockstep::parallel
