// Buckets that have memory while they travel only (Stage::shards_gradients()): a few
// slots take turns, and a rank keeps the sums of its shards.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/parallel/detail/exchange.h"

namespace lockstep::parallel::detail {

// The largest bucket of a group fits into each of its slots. Buckets start in the same
// order on every rank, so each takes the same slot everywhere.
void Exchange::make_pool() {
  const auto& groups = buffers_.groups();
  turn_.assign(groups.size(), 0);
  pool_.resize(groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::int64_t largest = 0;
    for (const auto& bucket : groups[g].buckets) {
      largest = std::max(largest, bucket.end - bucket.begin);
    }
    const auto count = std::min(options_.live_buckets, groups[g].buckets.size());
    for (std::size_t s = 0; s < count; ++s) {
      pool_[g].push_back({sharers_.empty_buffer(largest, groups[g].dtype)});
    }
  }
  shard_sums_.resize(works_.size());
  for (const auto& work : works_) {
    const auto& group = groups[work.group];
    shard_sums_[work.index] =
        torch::zeros({work.shard.size}, torch::dtype(group.dtype).device(group.device));
  }
}

// Waits for the bucket that had the slot before, if its sum is still on its way.
void Exchange::take_slot(std::size_t index) {
  auto& work = works_[index];
  auto& slots = pool_[work.group];
  auto& slot = slots[turn_[work.group]++ % slots.size()];
  if (slot.user) finish(works_[*slot.user]);
  slot.user = index;
  work.gradients = slot.memory.narrow(0, 0, work.bucket.end - work.bucket.begin);
  work.travels = true;
  zero_gaps(work);
}

// What lies between two parameters is part of a shard, too. On a GPU one large fill
// takes less time than many small ones.
void Exchange::zero_gaps(const Work& work) const {
  if (!work.gradients.device().is_cpu()) {
    work.gradients.zero_();
    return;
  }
  const auto& slots = buffers_.groups()[work.group].slots;
  for (auto s = work.bucket.first_slot; s < work.bucket.last_slot; ++s) {
    const auto begin = slots[s].offset + slots[s].numel;
    const auto end =
        s + 1 < work.bucket.last_slot ? slots[s + 1].offset : work.bucket.end;
    work.gradients.narrow(0, begin - work.bucket.begin, end - begin).zero_();
  }
}

torch::Tensor Exchange::view_of(std::size_t parameter) const {
  const auto& work = works_[work_of_[parameter]];
  const auto& slots = buffers_.groups()[work.group].slots;
  for (auto s = work.bucket.first_slot; s < work.bucket.last_slot; ++s) {
    if (slots[s].parameter != parameter) continue;
    const auto& like = buffers_.parameter(parameter);
    return work.gradients.as_strided(
        like.sizes(), like.strides(),
        work.gradients.storage_offset() + slots[s].offset - work.bucket.begin);
  }
  throw Error(Fault::internal, "parallel: no slot for parameter ", parameter);
}

// The first pass of a step begins the sum, others add to it.
void Exchange::add_to_shard(Work& work) {
  const auto own = work.shard.of(work.gradients);
  auto& sum = shard_sums_[work.index];
  if (work.holds_sum) {
    sum.add_(own);
  } else {
    sum.copy_(own);
  }
  work.holds_sum = true;
  work.travels = false;
  work.gradients.reset();
  for (auto& slot : pool_[work.group]) {
    if (slot.user && &works_[*slot.user] == &work) slot.user.reset();
  }
}

}  // namespace lockstep::parallel::detail
