// The engine's flat buffers: how parameters and gradients lie in them, which are on
// their way, and how they are laid out again once.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/parallel/detail/exchange.h"
#include "lockstep/parallel/detail/flat_buffers.h"
#include "lockstep/parallel/detail/hooks.h"
#include "lockstep/parallel/detail/use_tracker.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::parallel {

void Engine::lay_out(const std::vector<std::size_t>& order) {
  laid_out_ = order;
  auto layout = options_.layout;
  layout.shards = shards_ ? data_.size() : 1;
  buffers_ = std::make_unique<detail::FlatBuffers>(
      parameters_, plan_layout(parameters_, order, layout), data_, shards_);
  owned_ = owned_shards(buffers_->groups(), options_.stage, data_.rank(), data_.size());
  exchange_ = std::make_unique<detail::Exchange>(
      *buffers_, data_, order, options_,
      [this](const std::vector<std::size_t>& parameters) { collect(parameters); });
  exchange_->observe(observer_);
  exchange_->wait_for_counts(!settled_);
  exchange_->tell_absences(use_->asks());
}

// Copies the first gradient of a step, or one that the user has replaced, into the
// bucket, and puts the view back.
void Engine::keep_view(std::size_t parameter) {
  auto& grad = tensors_[parameter].mutable_grad();
  const auto& view = buffers_->gradient_of(parameter);
  if (grad.is_same(view)) return;
  const torch::NoGradGuard no_grad;
  // A gradient with its own memory is dense, too: the sum over the ranks will be.
  if (grad.defined() && grad.layout() != torch::kStrided) grad = grad.to_dense();
  if (!options_.gradient_as_bucket_view) {
    if (grad.defined()) view.copy_(grad - exchange_->set_aside_of(parameter));
    return;
  }
  if (!grad.defined()) {
    if (!use_->is_used(parameter)) view.zero_();
  } else if (grad.numel() == 0 || grad.data_ptr() != view.data_ptr()) {
    buffers_->fill_gradient(parameter, grad);
  }
  grad = view;
}

// Called before a bucket is sent. A gradient that the user has dropped since an earlier
// pass of this step (zero_grad() sets gradients to none) is not added again. On a GPU
// starting a copy costs more than the copy: there the copies of a bucket start
// together, now.
void Engine::collect(const std::vector<std::size_t>& parameters) {
  for (const auto i : parameters) {
    const bool dropped = !tensors_[i].grad().defined();
    if (dropped && exchange_->drop_stash(i)) use_->clear(i);
  }
  if (!collects_) return;
  std::vector<std::size_t> there;
  std::vector<torch::Tensor> from;
  for (const auto i : parameters) {
    auto& grad = tensors_[i].mutable_grad();
    const auto& view = buffers_->gradient_of(i);
    if (!grad.defined() || grad.is_same(view)) continue;
    const bool dense = grad.layout() == torch::kStrided;
    if (!dense || grad.numel() == 0 || grad.data_ptr() != view.data_ptr()) {
      there.push_back(i);
      from.push_back(grad);
    }
    grad = view;
  }
  buffers_->fill_gradients(there, from);
}

// Shows every gradient to the optimizer and the user.
void Engine::put_gradients_back() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    auto& grad = tensors_[i].mutable_grad();
    const auto& view = buffers_->gradient_of(i);
    if (options_.gradient_as_bucket_view) {
      if (!grad.is_same(view)) grad = view;
    } else if (grad.defined()) {
      grad.copy_(view);
    } else {
      grad = view.clone();
    }
  }
}

// Gathers the bucket of which `shard` is this rank's part.
comm::Pending Engine::gather(const torch::Tensor& flat, const Shard& shard) {
  const auto begin = shard.offset - data_.rank() * shard.size;
  const auto bucket = flat.narrow(0, begin, data_.size() * shard.size);
  return data_.all_gather(bucket, shard.of(flat));
}

void Engine::updated(std::size_t index) {
  if (!shards_) return;
  const auto& shard = owned_[index];
  if (observer_ != nullptr) observer_->started({Parcel::Of::parameters, index});
  travelling_.push_back(gather(buffers_->values(shard.group), shard));
}

void Engine::wait_for_values() {
  for (std::size_t i = 0; i < travelling_.size(); ++i) {
    travelling_[i].wait();
    if (observer_ != nullptr) observer_->arrived({Parcel::Of::parameters, i});
  }
  travelling_.clear();
}

void Engine::gather_gradients() {
  if (!shards_) return;
  std::vector<comm::Pending> pending;
  for (const auto& shard : owned_) {
    pending.push_back(gather(buffers_->gradients(shard.group), shard));
  }
  for (auto& one : pending) one.wait();
}

void Engine::settle() {
  settled_ = true;
  exchange_->wait_for_counts(false);
}

// The order in which rank 0 has seen its gradients becomes that of the buckets.
void Engine::rebuild_once(bool failed) {
  // With a single rank nothing travels, and new buffers would only take memory.
  if (settled_ || cpu_.size() == 1) return;
  const auto count = static_cast<std::int64_t>(parameters_.size());
  const auto word = torch::full({count}, -1, torch::kInt64);
  const auto against =
      torch::tensor({failed ? 1 : 0, on_relayout_ ? 0 : 1}, torch::kInt32);
  cpu_.all_reduce(against, comm::Reduce::max).wait();
  // An optimizer would go on with its state of the old places.
  if (against[1].item<int>() != 0) return settle();
  // A rank that has no memory has none for new buffers: the next step will show.
  if (against[0].item<int>() != 0) return;
  auto* agreed = word.mutable_data_ptr<std::int64_t>();
  if (!order_.empty()) {
    auto order = order_;
    for (const auto i : reversed_order(parameters_.size())) {
      if (std::find(order_.begin(), order_.end(), i) == order_.end())
        order.push_back(i);
    }
    LOCKSTEP_CHECK(order.size() == parameters_.size());
    std::copy(order.begin(), order.end(), agreed);
  }
  cpu_.broadcast(word, 0).wait();
  if (agreed[0] < 0) return;  // rank 0 had no samples: the next step will show
  settled_ = true;
  gather_gradients();  // the shards will be others
  lay_out({agreed, agreed + count});
  put_gradients_back();
  exchange_->remember_sums();
  if (on_relayout_) on_relayout_();
}

void Engine::use_order(const std::vector<std::size_t>& order) {
  LOCKSTEP_CHECK(!settled_ && order.size() == parameters_.size(), order.size(), " of ",
                 parameters_.size());
  settled_ = true;
  lay_out(order);
  if (on_relayout_) on_relayout_();
}

}  // namespace lockstep::parallel
