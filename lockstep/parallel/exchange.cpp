#include "lockstep/parallel/detail/exchange.h"

#include <algorithm>
#include <utility>

#include <ATen/Dispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"

namespace lockstep::parallel::detail {
namespace {

std::size_t num_buckets(const FlatBuffers& buffers) {
  std::size_t number = 0;
  for (const auto& group : buffers.groups()) number += group.buckets.size();
  return number;
}

// Calls `body(pointer)` with the elements of a tensor of the host.
template <typename Body>
void with_elements(const torch::Tensor& t, const Body& body) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, t.scalar_type(), "counters",
                                  [&] { body(t.mutable_data_ptr<scalar_t>()); });
}

}  // namespace

Exchange::Exchange(Parts parts)
    : buffers_(parts.buffers),
      data_(parts.data),
      sharers_(parts.sharers),
      across_(parts.across),
      options_(parts.options),
      collect_(std::move(parts.collect)),
      scatters_(data_.size() > 1 && options_.stage.shards_update()),
      pools_(data_.size() > 1 && options_.stage.shards_gradients()),
      work_of_(parts.order.size()),
      arrived_(parts.order.size()),
      absences_(parts.order.size()),
      stamps_(buffers_.groups()[0].device, num_buckets(buffers_)) {
  const auto& order = parts.order;
  const auto& groups = buffers_.groups();
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const auto& bucket : groups[g].buckets) add_work(g, bucket);
  }
  // Buckets of different groups are started by when the last of their gradients is
  // expected.
  std::vector<std::size_t> position(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) position[order[i]] = i;
  std::stable_sort(works_.begin(), works_.end(), [&](const Work& a, const Work& b) {
    return position[a.parameters.back()] < position[b.parameters.back()];
  });
  for (std::size_t w = 0; w < works_.size(); ++w) {
    for (const auto parameter : works_[w].parameters) work_of_[parameter] = w;
  }
  if (pools_) make_pool();
}

void Exchange::add_work(std::size_t group, const Bucket& bucket) {
  Work work;
  work.group = group;
  work.index = works_.size();
  work.bucket = bucket;
  if (scatters_) {
    work.shard = shard_of(group, bucket, {sharers_.rank(), sharers_.size()});
    work.shard.offset -= bucket.begin;
  }
  if (!pools_) work.gradients = buffers_.bucket(group, bucket);
  for (std::size_t s = bucket.first_slot; s < bucket.last_slot; ++s) {
    const auto& slot = buffers_.groups()[group].slots[s];
    work.parameters.push_back(slot.parameter);
    work.counters.push_back(slot.counter() - bucket.begin);
  }
  const auto device = buffers_.groups()[group].device;
  if (!device.is_cpu()) {
    work.device_counters = torch::tensor(work.counters, torch::kInt64).to(device);
  }
  works_.push_back(std::move(work));
}

void Exchange::begin() {
  std::fill(arrived_.begin(), arrived_.end(), 0);
  std::fill(absences_.begin(), absences_.end(), 0);
  for (auto& work : works_) {
    work.missing = work.parameters.size();
    work.pending = {};
    work.seen = false;
  }
  next_ = 0;
  next_across_ = 0;
  counts_started_ = false;
}

void Exchange::put_aside(Work& work) {
  const torch::NoGradGuard no_grad;
  work.aside = work.gradients.clone();
  work.gradients.zero_();
  work.holds_sum = false;
}

void Exchange::stash(std::size_t parameter) {
  auto& work = works_[work_of_[parameter]];
  if (work.holds_sum) put_aside(work);
}

torch::Tensor Exchange::stashed(std::size_t parameter) const {
  const auto& work = works_[work_of_[parameter]];
  const auto& view = buffers_.gradient_of(parameter);
  if (!work.aside.defined()) return torch::zeros({}, view.options());
  return work.aside.as_strided(view.sizes(), view.strides(),
                               view.storage_offset() - work.bucket.begin);
}

bool Exchange::drop_stash(std::size_t parameter) {
  if (!works_[work_of_[parameter]].aside.defined()) return false;
  const torch::NoGradGuard no_grad;
  stashed(parameter).zero_();
  return true;
}

void Exchange::ready(std::size_t parameter, const Flags& used) {
  arrived_[parameter] = 1;
  works_[work_of_[parameter]].missing -= 1;
  while (next_ < works_.size() && works_[next_].missing == 0) {
    start(next_, used, /*as_if_used=*/false);
    ++next_;  // not before: one that throws is started again
  }
}

// Such backends, and two ranks, sum in the order of the ranks anyway.
bool Exchange::gathers(const comm::Communicator& ranks) const {
  return options_.deterministic && !ranks.traits().sums_in_rank_order &&
         ranks.size() > 2;
}

torch::Dtype Exchange::wire_type(const torch::Tensor& gradients) const {
  if (options_.compression == Compression::fp16) return torch::kHalf;
  if (options_.compression == Compression::bf16) return torch::kBFloat16;
  return gradients.scalar_type();
}

// A single rank, or the only one of a modelled network, knows what it has used.
bool Exchange::has_peers_counts() const {
  return data_.size() > 1 && !data_.traits().is_modelled;
}

// Gradients are written over, not added to zeros: memory that no pass has written holds
// those of an earlier step.
void Exchange::zero_what_is_missing(Work& work, const Flags& used,
                                    bool as_if_used) const {
  const bool tell = telling_ && counts_in_buckets() && !as_if_used;
  for (std::size_t i = 0; i < work.parameters.size(); ++i) {
    const auto parameter = work.parameters[i];
    if (used[parameter]) continue;
    buffers_.gradient_of(parameter).zero_();
    if (tell) work.gradients.narrow(0, work.counters[i], 1).fill_(1);
  }
}

void Exchange::start(std::size_t index, const Flags& used, bool as_if_used) {
  auto& work = works_[index];
  stamps_.ready(index);
  const torch::NoGradGuard no_grad;
  if (pools_) {
    take_slot(index);
  } else if (work.holds_sum) {
    put_aside(work);
  }
  collect_(work.parameters);
  if (!pools_) zero_what_is_missing(work, used, as_if_used);
  if (data_.size() == 1) return;
  if (observer_ != nullptr) {
    tell_of_arrivals();
    observer_->started({.index = index});
  }
  send(work);
  if (across_ != nullptr) start_across_if_possible(index);
}

// A compressed or gathered exchange sends something else than the gradients.
void Exchange::send(Work& work) {
  const auto type = wire_type(work.gradients);
  if (gathers(sharers_)) {
    const auto own = work.gradients.to(type);
    work.wire = torch::empty({sharers_.size() * own.numel()}, own.options());
    work.pending = sharers_.all_gather(work.wire, own);
    return;
  }
  if (type != work.gradients.scalar_type()) work.wire = work.gradients.to(type);
  const auto& sent = work.wire.defined() ? work.wire : work.gradients;
  work.pending = scatters_ ? sharers_.reduce_scatter(work.shard.of(sent), sent)
                           : data_.all_reduce(sent);
}

// Counts start after all buckets, so that the order is the same on every rank.
void Exchange::start_counts(const Flags& used, bool as_if_used) {
  if (counts_started_ || !telling_ || !has_peers_counts() || !scatters_) return;
  counts_started_ = true;
  const auto own =
      torch::zeros({static_cast<std::int64_t>(used.size())}, torch::kFloat32);
  auto* absent = own.mutable_data_ptr<float>();
  for (std::size_t i = 0; i < used.size(); ++i) {
    absent[i] = used[i] || as_if_used ? 0.0F : 1.0F;
  }
  counts_ = own.to(data_.device());
  counts_pending_ = data_.all_reduce(counts_);
}

// Reads the counters and leaves zeros: these elements are no gradients.
void Exchange::read_counters(Work& work) {
  if (work.device_counters.defined()) {
    work.counts = work.gradients.index_select(0, work.device_counters);
    work.gradients.index_fill_(0, work.device_counters, 0);
    return;
  }
  with_elements(work.gradients, [&](auto* elements) {
    for (std::size_t i = 0; i < work.parameters.size(); ++i) {
      auto& counter = elements[work.counters[i]];
      absences_[work.parameters[i]] = static_cast<int>(counter);
      counter = 0;
    }
  });
}

void Exchange::finish(Work& work) {
  if (across_ != nullptr) {
    start_across_through(static_cast<std::size_t>(&work - works_.data()));
    end_across(work);
  } else {
    end_sum(work);
  }
  if (pools_) return add_to_shard(work);
  if (telling_ && counts_in_buckets()) read_counters(work);
  if (work.aside.defined()) work.gradients.add_(work.aside);
  work.aside.reset();
  work.holds_sum = true;
}

void Exchange::start_through(std::size_t parameter, const Flags& used) {
  const auto last = work_of_[parameter];
  while (next_ <= last) {
    start(next_, used, /*as_if_used=*/false);
    ++next_;
  }
}

void Exchange::start_rest(const Flags& used, bool as_if_used) {
  for (; next_ < works_.size(); ++next_) start(next_, used, as_if_used);
  if (!pools_) start_counts(used, as_if_used);
}

void Exchange::complete() {
  const torch::NoGradGuard no_grad;
  stamps_.begin_wait();
  tell_of_arrivals();
  if (across_ != nullptr) start_across_through(works_.size() - 1);
  for (std::size_t w = 0; w < works_.size(); ++w) {
    if (!pools_ || works_[w].travels) finish(works_[w]);
    if (observer_ == nullptr || works_[w].seen || data_.size() == 1) continue;
    works_[w].seen = true;
    observer_->arrived({.index = w});
  }
  if (!pools_) wait_for_counts();
  stamps_.end_wait();
}

void Exchange::wait_for_counts() {
  if (counts_started_) counts_pending_.wait();
}

// Reports buckets that have arrived; the host can not see those of a GPU.
void Exchange::tell_of_arrivals() {
  if (observer_ == nullptr || data_.size() == 1 || !data_.device().is_cpu()) return;
  for (std::size_t w = 0; w < next_; ++w) {
    if (works_[w].seen || !works_[w].pending.done()) continue;
    works_[w].seen = true;
    observer_->arrived({.index = w});
  }
}

// Returns the counts in the order of the works, or of all parameters.
torch::Tensor Exchange::all_counts() const {
  if (scatters_) return counts_;
  std::vector<torch::Tensor> counts;
  for (const auto& work : works_) counts.push_back(work.counts.to(torch::kFloat32));
  return torch::cat(counts);
}

// Returns the counts of a GPU, which come to the host while the next step computes.
torch::Tensor Exchange::late_counts() {
  const auto all = all_counts();
  if (options_.find_unused_parameters || std::exchange(waits_for_counts_, false)) {
    return all.cpu();
  }
  const c10::impl::VirtualGuardImpl guard(all.device().type());
  auto before = std::move(late_counts_);
  if (copied_) copied_->synchronize();
  late_counts_ =
      torch::empty(all.sizes(), torch::dtype(torch::kFloat32).pinned_memory(true));
  late_counts_.copy_(all, /*non_blocking=*/true);
  if (!copied_) copied_.emplace(all.device().type());
  copied_->record(guard.getStream(all.device()));
  return before;
}

const std::vector<int>& Exchange::absences(const Flags& used, bool as_if_used) {
  if (!has_peers_counts()) {
    for (std::size_t i = 0; i < used.size(); ++i) {
      absences_[i] = used[i] || as_if_used ? 0 : 1;
    }
    return absences_;
  }
  const bool on_gpu = works_[0].device_counters.defined();
  if (!on_gpu && !scatters_) return absences_;
  const auto all = on_gpu ? late_counts() : counts_;
  if (!all.defined()) return none_;
  const auto* count = all.const_data_ptr<float>();
  if (scatters_) {
    std::transform(count, count + all.numel(), absences_.begin(),
                   [](float n) { return static_cast<int>(n); });
    return absences_;
  }
  for (const auto& work : works_) {
    for (const auto parameter : work.parameters) {
      absences_[parameter] = static_cast<int>(*count++);
    }
  }
  return absences_;
}

void Exchange::remember_sums() {
  for (auto& work : works_) work.holds_sum = true;
}

void Exchange::forget_sums() {
  for (auto& work : works_) {
    work.holds_sum = false;
    work.aside.reset();
  }
}

}  // namespace lockstep::parallel::detail
