// The ends of the sums of buckets; and where shards lie within groups of ranks, the
// sums of each shard over the groups, which follow those within them.
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/parallel/detail/exchange.h"

namespace lockstep::parallel::detail {
namespace {

// Puts the sum of what `ranks` ranks have sent, one after the other in `wire`, into
// `out`. Halves are summed in float, as the backends that sum in this order do.
void sum_in_rank_order(const torch::Tensor& out, const torch::Tensor& wire, int ranks) {
  const auto rows = wire.view({ranks, -1});
  const auto type = out.scalar_type();
  const bool half = type == torch::kHalf || type == torch::kBFloat16;
  auto sum = rows[0].to(half ? torch::kFloat32 : type);
  for (int r = 1; r < ranks; ++r) sum.add_(rows[r]);
  // The sum is rounded as a backend that sums what travels would.
  out.copy_(sum.to(wire.scalar_type()));
}

// Makes a stream of a device the current one, as long as it lives.
class OnStream {
 public:
  explicit OnStream(const c10::Stream& stream)
      : guard_(stream.device_type()), before_(guard_.exchangeStream(stream)) {}
  ~OnStream() { guard_.exchangeStream(before_); }
  OnStream(const OnStream&) = delete;
  OnStream& operator=(const OnStream&) = delete;

 private:
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream before_;
};

}  // namespace

// Waits for the sum of a bucket within its group, or over all ranks.
void Exchange::end_sum(Work& work) {
  work.pending.wait();
  if (gathers(sharers_)) {
    sum_in_rank_order(work.gradients, work.wire, sharers_.size());
  } else if (work.wire.defined()) {
    work.gradients.copy_(work.wire);
  }
  work.wire.reset();
}

// What travels over the groups is rounded once more, as a sum of what travels would be.
void Exchange::start_across(Work& work) {
  end_sum(work);
  const auto own = work.shard.of(work.gradients);
  const auto type = wire_type(own);
  if (gathers(*across_)) {
    const auto sent = own.to(type);
    work.wire = torch::empty({across_->size() * sent.numel()}, sent.options());
    work.pending = across_->all_gather(work.wire, sent);
    return;
  }
  if (type != own.scalar_type()) work.wire = own.to(type);
  work.pending = across_->all_reduce(work.wire.defined() ? work.wire : own);
}

// These start in the order of the buckets, so that it is the same on every rank.
void Exchange::start_across_through(std::size_t index) {
  for (; next_across_ <= index; ++next_across_) start_across(works_[next_across_]);
}

// Starts, after bucket `index` has been sent, what needs no waiting: on a CPU the
// buckets whose sums are there. On a GPU one collective follows the other on a stream
// of its own, on which nothing is allocated or computed; what has to be converted in
// between is left to the end of the pass.
void Exchange::start_across_if_possible(std::size_t index) {
  if (data_.device().is_cpu()) {
    while (next_across_ <= index && works_[next_across_].pending.done()) {
      start_across_through(next_across_);
    }
    return;
  }
  const auto& work = works_[index];
  const bool converts = work.wire.defined() || gathers(*across_);
  if (converts || !data_.traits().can_be_captured) return;
  const c10::impl::VirtualGuardImpl guard(data_.device().type());
  if (!side_) side_ = guard.getStreamFromGlobalPool(data_.device(), true);
  const OnStream on(*side_);
  start_across_through(index);
}

void Exchange::end_across(Work& work) {
  work.pending.wait();
  const auto own = work.shard.of(work.gradients);
  if (gathers(*across_)) {
    sum_in_rank_order(own, work.wire, across_->size());
  } else if (work.wire.defined()) {
    own.copy_(work.wire);
  }
  work.wire.reset();
}

}  // namespace lockstep::parallel::detail
