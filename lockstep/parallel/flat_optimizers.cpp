#include "lockstep/parallel/detail/flat_optimizers.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::parallel::detail {
namespace {

// What an optimizer remembers of each element; not its step count, which is one number.
bool is_per_element(const torch::Tensor& state, const Shard& shard) {
  return state.dim() == 1 && state.numel() == shard.size;
}

// Copies of pieces of tensors, to be put back.
class Kept {
 public:
  void keep(const torch::Tensor& piece) {
    if (piece.numel() > 0) pieces_.emplace_back(piece, piece.clone());
  }
  void put_back() {
    for (auto& [piece, copy] : pieces_) piece.copy_(copy);
  }

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> pieces_;
};

// The part of a tensor like `shard` that belongs to a slot.
torch::Tensor part_of(const torch::Tensor& tensor, const Shard& shard,
                      const Slot& slot) {
  const auto begin = std::max(slot.offset - shard.offset, std::int64_t{0});
  const auto end = std::min(slot.offset + slot.numel - shard.offset, shard.size);
  return tensor.narrow(0, std::min(begin, shard.size),
                       std::max(end - begin, std::int64_t{0}));
}

void keep_what_is_unused(Kept& kept, Engine& engine, const Shard& shard,
                         const optim::Optimizer& optimizer) {
  const auto& unused = engine.globally_unused();
  if (unused.empty()) return;
  for (const auto& slot : engine.layout()[shard.group].slots) {
    if (std::find(unused.begin(), unused.end(), slot.parameter) == unused.end()) {
      continue;
    }
    kept.keep(part_of(shard.of(engine.values(shard.group)), shard, slot));
    for (const auto& [name, state] : optimizer.state()) {
      if (is_per_element(state, shard)) kept.keep(part_of(state, shard, slot));
    }
  }
}

// The elements of the parameters, from their places in one layout to those in another.
torch::Tensor moved(const torch::Tensor& flat, const Group& before,
                    const Group& after) {
  auto result = torch::zeros({after.numel}, flat.options());
  for (const auto& slot : after.slots) {
    const auto was = std::find_if(
        before.slots.begin(), before.slots.end(),
        [&](const Slot& other) { return other.parameter == slot.parameter; });
    LOCKSTEP_CHECK(was != before.slots.end(), "parameter ", slot.parameter);
    result.narrow(0, slot.offset, slot.numel)
        .copy_(flat.narrow(0, was->offset, was->numel));
  }
  return result;
}

torch::Tensor state_named(const optim::Optimizer& optimizer, const std::string& name) {
  for (const auto& [other, tensor] : optimizer.state()) {
    if (other == name) return tensor;
  }
  throw Error(Fault::internal, "parallel: the optimizer has no state '", name, "'");
}

}  // namespace

FlatOptimizers::FlatOptimizers(const config::OptimConfig& config, Engine& engine,
                               comm::Communicator& data)
    : config_(config),
      engine_(engine),
      data_(data),
      layout_(engine.layout()),
      owned_(engine.owned()),
      pieces_(make()) {}

FlatOptimizers::Pieces FlatOptimizers::make() const {
  Pieces pieces;
  for (const auto& shard : engine_.owned()) {
    const auto values = shard.of(engine_.values(shard.group));
    pieces.push_back(optim::make_optimizer(config_, values));
  }
  return pieces;
}

void FlatOptimizers::step(double lr) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    const auto& shard = owned_[i];
    auto values = shard.of(engine_.values(shard.group));
    auto gradients = shard.of(engine_.gradients(shard.group));
    Kept kept;
    keep_what_is_unused(kept, engine_, shard, *pieces_[i]);
    pieces_[i]->step(values, gradients, lr);
    kept.put_back();
    engine_.updated(i);
  }
  engine_.wait_for_values();
}

// What is remembered of a whole group, from the ranks that have it.
torch::Tensor FlatOptimizers::whole(std::size_t group, const std::string& name) const {
  torch::Tensor all;
  std::int64_t here = 0;
  for (std::size_t i = 0; i < owned_.size(); ++i) {
    if (owned_[i].group != group) continue;
    const auto state = state_named(*pieces_[i], name);
    if (!all.defined()) all = torch::zeros({layout_[group].numel}, state.options());
    owned_[i].of(all).copy_(state);
    here += owned_[i].size;
  }
  if (here < layout_[group].numel) data_.all_reduce(all).wait();
  return all;
}

void FlatOptimizers::follow() {
  const torch::NoGradGuard no_grad;
  auto next = make();
  const auto& owned = engine_.owned();
  for (std::size_t group = 0; group < layout_.size(); ++group) {
    const auto in_group = [&](const Shard& shard) { return shard.group == group; };
    const auto first = std::find_if(owned_.begin(), owned_.end(), in_group);
    const auto& old = *pieces_[static_cast<std::size_t>(first - owned_.begin())];
    for (const auto& [name, state] : old.state()) {
      const bool per_element = is_per_element(state, *first);
      const auto all = per_element ? moved(whole(group, name), layout_[group],
                                           engine_.layout()[group])
                                   : state;
      for (std::size_t i = 0; i < owned.size(); ++i) {
        if (owned[i].group != group) continue;
        state_named(*next[i], name).copy_(per_element ? owned[i].of(all) : all);
      }
    }
  }
  pieces_ = std::move(next);
  layout_ = engine_.layout();
  owned_ = owned;
}

}  // namespace lockstep::parallel::detail
