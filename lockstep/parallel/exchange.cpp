#include "lockstep/parallel/detail/exchange.h"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/base/error.h"

namespace lockstep::parallel::detail {
namespace {

torch::Dtype wire_type(Compression compression, torch::Dtype own) {
  if (compression == Compression::fp16) return torch::kHalf;
  if (compression == Compression::bf16) return torch::kBFloat16;
  return own;
}

}  // namespace

Exchange::Exchange(FlatBuffers& buffers, comm::Communicator& data,
                   const std::vector<std::size_t>& order, const EngineOptions& options)
    : buffers_(buffers),
      data_(data),
      options_(options),
      work_of_(order.size()),
      arrived_(order.size()) {
  const auto& groups = buffers.groups();
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
}

void Exchange::add_work(std::size_t group, const Bucket& bucket) {
  Work work;
  work.group = group;
  work.bucket = bucket;
  work.gradients = buffers_.bucket(group, bucket);
  std::vector<std::int64_t> counters;
  for (std::size_t s = bucket.first_slot; s < bucket.last_slot; ++s) {
    const auto& slot = buffers_.groups()[group].slots[s];
    work.parameters.push_back(slot.parameter);
    counters.push_back(slot.counter() - bucket.begin);
  }
  work.counters = torch::tensor(counters, torch::kInt64).to(work.gradients.device());
  works_.push_back(std::move(work));
}

void Exchange::begin() {
  std::fill(arrived_.begin(), arrived_.end(), false);
  for (auto& work : works_) work.missing = work.parameters.size();
  next_ = 0;
}

void Exchange::set_aside_sum_of(std::size_t parameter) {
  auto& work = works_[work_of_[parameter]];
  if (!work.holds_sum) return;
  const torch::NoGradGuard no_grad;
  work.aside = work.gradients.clone();
  work.gradients.zero_();
  work.holds_sum = false;
}

torch::Tensor Exchange::set_aside_of(std::size_t parameter) const {
  const auto& work = works_[work_of_[parameter]];
  const auto& view = buffers_.gradient_of(parameter);
  if (!work.aside.defined()) return torch::zeros({}, view.options());
  return work.aside.as_strided(view.sizes(), view.strides(),
                               view.storage_offset() - work.bucket.begin);
}

void Exchange::ready(std::size_t parameter, const std::vector<bool>& used) {
  if (arrived_[parameter]) return;
  arrived_[parameter] = true;
  works_[work_of_[parameter]].missing -= 1;
  while (next_ < works_.size() && works_[next_].missing == 0) {
    start(works_[next_++], used);
  }
}

// One that halves or gathers sends something else than the gradients themselves.
bool Exchange::gathers() const {
  // These sum in the order of the ranks anyway.
  const bool in_order = data_.backend() == "local" || data_.backend() == "shm";
  return options_.deterministic && !in_order && data_.size() > 2;
}

void Exchange::write_counters(Work& work, const std::vector<bool>& used) const {
  const bool all =
      std::all_of(work.parameters.begin(), work.parameters.end(),
                  [&](std::size_t parameter) { return bool(used[parameter]); });
  if (all) {
    work.gradients.index_fill_(0, work.counters, 1);
    return;
  }
  std::vector<float> flags;
  for (const auto parameter : work.parameters) flags.push_back(used[parameter] ? 1 : 0);
  const auto values = torch::tensor(flags).to(work.gradients.options());
  work.gradients.index_copy_(0, work.counters, values);
}

void Exchange::start(Work& work, const std::vector<bool>& used) {
  const torch::NoGradGuard no_grad;
  write_counters(work, used);
  if (data_.size() == 1) return;
  const auto type = wire_type(options_.compression, work.gradients.scalar_type());
  if (gathers()) {
    const auto own = work.gradients.to(type);
    work.wire = torch::empty({data_.size() * own.numel()}, own.options());
    work.pending = data_.all_gather(work.wire, own);
  } else if (type != work.gradients.scalar_type()) {
    work.wire = work.gradients.to(type);
    work.pending = data_.all_reduce(work.wire);
  } else {
    work.pending = data_.all_reduce(work.gradients);
  }
}

// Halves are summed in float, as the backends that sum in this order do.
void Exchange::sum_in_rank_order(Work& work) const {
  const auto rows = work.wire.view({data_.size(), -1});
  const auto type = work.gradients.scalar_type();
  const bool half = type == torch::kHalf || type == torch::kBFloat16;
  auto sum = rows[0].to(half ? torch::kFloat32 : type);
  for (int r = 1; r < data_.size(); ++r) sum.add_(rows[r]);
  work.gradients.copy_(sum);
}

void Exchange::complete(Work& work) {
  work.pending.wait();
  if (gathers()) {
    sum_in_rank_order(work);
  } else if (work.wire.defined()) {
    work.gradients.copy_(work.wire);
  }
  work.wire.reset();
  work.counts = work.gradients.index_select(0, work.counters);
  work.gradients.index_fill_(0, work.counters, 0);
  if (work.aside.defined()) work.gradients.add_(work.aside);
  work.aside.reset();
  work.holds_sum = true;
}

void Exchange::finish(const std::vector<bool>& used) {
  const torch::NoGradGuard no_grad;
  while (next_ < works_.size()) start(works_[next_++], used);
  for (auto& work : works_) complete(work);
}

std::vector<int> Exchange::users() {
  std::vector<torch::Tensor> counts;
  for (const auto& work : works_) counts.push_back(work.counts.to(torch::kFloat32));
  auto all = torch::cat(counts);
  if (!all.device().is_cpu() && !options_.find_unused_parameters) {
    const c10::impl::VirtualGuardImpl guard(all.device().type());
    auto before = std::move(late_counts_);
    const bool there = copied_.has_value();
    if (there) copied_->synchronize();
    late_counts_ =
        torch::empty(all.sizes(), torch::dtype(torch::kFloat32).pinned_memory(true));
    late_counts_.copy_(all, /*non_blocking=*/true);
    copied_.emplace(all.device().type());
    copied_->record(guard.getStream(all.device()));
    if (!there) return {};
    all = before;
  } else {
    all = all.cpu();
  }
  const auto* count = all.const_data_ptr<float>();
  std::vector<int> by_parameter(work_of_.size());
  for (const auto& work : works_) {
    for (const auto parameter : work.parameters) {
      by_parameter[parameter] = static_cast<int>(*count++);
    }
  }
  return by_parameter;
}

void Exchange::remember_sums() {
  for (auto& work : works_) work.holds_sum = true;
}

void Exchange::forget_sums() {
  for (auto& work : works_) work.holds_sum = false;
}

}  // namespace lockstep::parallel::detail
