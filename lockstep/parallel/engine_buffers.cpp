// The engine's flat buffers: how parameters and gradients lie in them, and which are on
// their way.
#include <ATen/ops/_foreach_copy.h>

#include "lockstep/base/error.h"
#include "lockstep/parallel/detail/exchange.h"
#include "lockstep/parallel/detail/flat_buffers.h"
#include "lockstep/parallel/detail/hooks.h"
#include "lockstep/parallel/detail/sharded_values.h"
#include "lockstep/parallel/detail/unit_gathers.h"
#include "lockstep/parallel/detail/use_tracker.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::parallel {

void Engine::lay_out() {
  auto layout = options_.layout;
  layout.shards = shards_ ? sharers().size() : 1;
  auto groups = plan_layout(parameters_, order_, layout);
  if (gathers_values_) make_units(groups);
  owned_ = owned_shards(groups, options_.stage, rank_index());
  buffers_ = std::make_unique<detail::FlatBuffers>(
      parameters_, std::move(groups),
      detail::FlatBuffers::Kind{.data = sharers(),
                                .values_travel = shards_,
                                .has_gradients = !pools_,
                                .has_values = !gathers_values_});
  exchange_ = std::make_unique<detail::Exchange>(detail::Exchange::Parts{
      .buffers = *buffers_,
      .data = data_,
      .sharers = sharers(),
      .across = across_.get(),
      .order = order_,
      .options = options_,
      .collect = [this](const std::vector<std::size_t>& parameters) {
        collect(parameters);
      }});
  exchange_->tell_absences(use_->asks());
  find_values_of_uses();
}

RankIndex Engine::replica() const noexcept {
  if (!shards_) return {data_.rank(), data_.size()};
  return across_ ? RankIndex{across_->rank(), across_->size()} : RankIndex{};
}

torch::Tensor Engine::owned_values(std::size_t index) {
  if (gathers_values_) return values_->shard(index);
  const auto& shard = owned_[index];
  return shard.of(buffers_->values(shard.group));
}

torch::Tensor Engine::owned_gradients(std::size_t index) {
  const auto& shard = owned_[index];
  return pools_ ? exchange_->shard_sum(index)
                : shard.of(buffers_->gradients(shard.group));
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
    if (grad.defined()) view.copy_(grad - exchange_->stashed(parameter));
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
  if (pools_) return move_into_bucket(parameters);
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

// The bucket has just been given memory, and autograd's gradients give theirs back.
void Engine::move_into_bucket(const std::vector<std::size_t>& parameters) {
  std::vector<torch::Tensor> to, from;
  for (const auto i : parameters) {
    auto& grad = tensors_[i].mutable_grad();
    if (tensors_[i].numel() == 0) continue;
    to.push_back(exchange_->view_of(i));
    if (!grad.defined()) {
      to.back().zero_();
      to.pop_back();
      continue;
    }
    from.push_back(grad.layout() == torch::kStrided ? grad : grad.to_dense());
  }
  if (!to.empty()) at::_foreach_copy_(to, from);
  for (const auto i : parameters) tensors_[i].mutable_grad().reset();
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
  const auto begin = shard.offset - sharers().rank() * shard.size;
  const auto bucket = flat.narrow(0, begin, sharers().size() * shard.size);
  return sharers().all_gather(bucket, shard.of(flat));
}

void Engine::updated(std::size_t index) {
  if (!shards_ || gathers_values_) return;
  const auto& shard = owned_[index];
  if (observer_ != nullptr) observer_->started({Parcel::Of::parameters, index});
  travelling_.resize(owned_.size());
  travelling_[index] = gather(buffers_->values(shard.group), shard);
  travels_[index] = 1;
}

void Engine::wait_for_value(std::size_t index) {
  if (travels_[index] == 0) return;
  travels_[index] = 0;  // set first: a communicator that failed ends every wait
  travelling_[index].wait();
  if (observer_ != nullptr) observer_->arrived({Parcel::Of::parameters, index});
}

void Engine::wait_for_values() {
  for (std::size_t i = 0; i < travels_.size(); ++i) wait_for_value(i);
}

void Engine::wait_for_values_of(std::size_t use) {
  for (const auto index : values_of_use_[use]) wait_for_value(index);
}

// Buckets are cut along the backward pass, so several units may have a part of one.
void Engine::find_values_of_uses() {
  travels_.assign(owned_.size(), 0);
  if (!shards_ || gathers_values_) return;
  std::vector<std::vector<std::size_t>> pieces(parameters_.size());  // by parameter
  std::size_t index = 0;
  for (const auto& group : buffers_->groups()) {
    for (const auto& bucket : group.buckets) {
      for (auto s = bucket.first_slot; s < bucket.last_slot; ++s) {
        pieces[group.slots[s].parameter].push_back(index);
      }
      ++index;
    }
  }
  std::vector<char> has_unit(parameters_.size());
  for (const auto* unit : options_.units) {
    auto& needed = values_of_use_.emplace_back();
    for (const auto& parameter : unit->parameters()) {
      const auto found = index_of_.find(parameter.unsafeGetTensorImpl());
      if (found == index_of_.end()) continue;
      has_unit[found->second] = 1;
      const auto& own = pieces[found->second];
      needed.insert(needed.end(), own.begin(), own.end());
    }
  }
  auto& rest = values_of_use_.emplace_back();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (has_unit[i] == 0) rest.insert(rest.end(), pieces[i].begin(), pieces[i].end());
  }
}

void Engine::gather_gradients() {
  if (pools_) {
    throw Error(Fault::config,
                "parallel: gradients are whole on no rank at this stage; "
                "visit_gradients() shows them one bucket at a time");
  }
  if (!shards_) return;
  std::vector<comm::Pending> pending;
  for (const auto& shard : owned_) {
    pending.push_back(gather(buffers_->gradients(shard.group), shard));
  }
  for (auto& one : pending) one.wait();
}

void Engine::visit_gradients(const Visit& visit) {
  const torch::NoGradGuard no_grad;
  if (!pools_) {
    gather_gradients();
    for (std::size_t i = 0; i < tensors_.size(); ++i) visit(i, tensors_[i].grad());
    return;
  }
  for (std::size_t index = 0; index < owned_.size(); ++index) {
    const auto own = owned_gradients(index);
    const auto whole = torch::empty({sharers().size() * own.numel()}, own.options());
    sharers().all_gather(whole, own).wait();
    const auto begin = owned_[index].offset - sharers().rank() * own.numel();
    for (const auto& slot : buffers_->groups()[owned_[index].group].slots) {
      if (slot.offset < begin || slot.offset >= begin + whole.numel()) continue;
      const auto& like = tensors_[slot.parameter];
      visit(slot.parameter,
            whole.as_strided(like.sizes(), like.strides(), slot.offset - begin));
    }
  }
}

}  // namespace lockstep::parallel
