#pragma once

#include <algorithm>
#include <cstdint>

#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/layout.h"
#include "lockstep/parallel/shards.h"

namespace lockstep::parallel::detail {

// Returns where [begin, end) of a group's buffer lies in a shard; empty if outside.
inline optim::Elements within(const Shard& shard, std::int64_t begin,
                              std::int64_t end) {
  const auto clamp = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at - shard.offset, 0, shard.size);
  };
  return {clamp(begin), clamp(end)};
}

// Padding between two parameters is zero and stays so: it goes with the one before.
inline std::int64_t end_of(const Group& group, std::size_t slot) {
  const bool last = slot + 1 == group.slots.size();
  return last ? group.numel : group.slots[slot + 1].offset;
}

}  // namespace lockstep::parallel::detail
