// The part of a checkpoint with the flat buffers: elements by the names of their
// parameters, whatever the layout, the shards and the number of ranks are.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/parallel/detail/flat_optimizers.h"
#include "lockstep/parallel/detail/slot_pieces.h"

namespace lockstep::parallel::detail {
namespace {

using checkpoint::Piece;
using checkpoint::Pieces;

bool is_number(const torch::Tensor& state) {
  return state.dim() == 0;
}

// Returns "optimizer.exp_avg.conv.weight"; for a single number "optimizer.step".
std::string name_of(const std::string& state, const std::string& parameter) {
  if (state == "master") return "master." + parameter;
  if (state == "ema.average") return "ema." + parameter;
  return "optimizer." + state + "." + parameter;
}

std::string name_of_number(const std::string& state) {
  const bool average = state.rfind("ema.", 0) == 0;
  return average ? "ema_state." + state.substr(4) : "optimizer." + state;
}

}  // namespace

Shard to_write(const Shard& shard, const RankIndex& index) {
  const auto begin = shard.size * index.rank / index.ranks;
  const auto end = shard.size * (index.rank + 1) / index.ranks;
  return {shard.group, shard.offset + begin, end - begin};
}

void add_piece(Pieces& pieces, const SlotElements& of,
               const std::pair<std::string, torch::Tensor>& flat) {
  const auto& [parameter, slot, part, home] = of;
  const auto begin = std::max(slot.offset, part.offset);
  const auto end = std::min(slot.offset + slot.numel, part.offset + part.size);
  const bool empty = slot.numel == 0 && slot.offset >= part.offset &&
                     slot.offset < part.offset + part.size;
  if (begin >= end && !empty) return;
  pieces.push_back({.name = flat.first,
                    .data = flat.second.narrow(0, begin - home.offset,
                                               std::max<std::int64_t>(0, end - begin)),
                    .shape = parameter.tensor.sizes().vec(),
                    .order = checkpoint::order_of(parameter.tensor),
                    .begin = begin - slot.offset});
}

Pieces FlatOptimizers::pieces(bool to_save) const {
  const torch::NoGradGuard no_grad;
  const auto& parameters = engine_.parameters();
  Pieces result;
  bool first = data_.rank() == 0;  // single numbers are written once
  for (const auto& piece : pieces_) {
    const auto part = to_save ? to_write(piece.shard, engine_.replica()) : piece.shard;
    const auto state = piece.state();
    for (const auto& slot : layout_[part.group].slots) {
      const auto& parameter = parameters[slot.parameter];
      const SlotElements elements{parameter, slot, part, piece.shard};
      if (to_save || engine_.gathers_parameters()) {
        add_piece(result, elements,
                  {"model." + parameter.name, engine_.owned_values(piece.index)});
      }
      for (const auto& [name, tensor] : state) {
        if (is_number(tensor)) continue;
        add_piece(result, elements, {name_of(name, parameter.name), tensor});
      }
    }
    for (const auto& [name, tensor] : state) {
      if (!is_number(tensor) || (to_save && !first)) continue;
      result.push_back(checkpoint::whole_piece(name_of_number(name), tensor));
    }
    first = false;
  }
  if (to_save || engine_.gathers_parameters()) return result;
  // Values are whole on every rank.
  for (std::size_t g = 0; g < layout_.size(); ++g) {
    const Shard whole{g, 0, layout_[g].numel};
    for (const auto& slot : layout_[g].slots) {
      const auto& parameter = parameters[slot.parameter];
      add_piece(result, {parameter, slot, whole, whole},
                {"model." + parameter.name, engine_.values(g)});
    }
  }
  return result;
}

UnusedSteps FlatOptimizers::unused_steps() const {
  UnusedSteps steps;
  if (!pieces_.front().steps().defined()) return steps;
  for (std::size_t i = 0; i < behind_.size(); ++i) {
    if (behind_[i] > 0) steps[engine_.parameters()[i].name] = behind_[i];
  }
  return steps;
}

void FlatOptimizers::use_unused_steps(const UnusedSteps& steps) {
  const auto counted = pieces_.front().steps();
  if (!counted.defined()) return;
  for (std::size_t i = 0; i < behind_.size(); ++i) {
    const auto found = steps.find(engine_.parameters()[i].name);
    // An optimizer that starts over (checkpoint.ignore) has made no steps to miss.
    behind_[i] = found == steps.end()
                     ? 0
                     : std::min(found->second, counted.item<std::int64_t>());
  }
  tell_behind(pieces_);
}

std::vector<checkpoint::Expected> FlatOptimizers::expected() const {
  std::vector<checkpoint::Expected> all;
  const auto& parameters = engine_.parameters();
  for (std::size_t g = 0; g < layout_.size(); ++g) {
    const auto own =
        std::find_if(pieces_.begin(), pieces_.end(),
                     [&](const Piece& piece) { return piece.shard.group == g; });
    for (const auto& slot : layout_[g].slots) {
      const auto& parameter = parameters[slot.parameter];
      const auto shape = parameter.tensor.sizes().vec();
      all.push_back({"model." + parameter.name,
                     checkpoint::dtype_name(parameter.tensor.scalar_type()), shape});
      for (const auto& [name, tensor] : own->state()) {
        if (is_number(tensor)) continue;
        all.push_back({name_of(name, parameter.name),
                       checkpoint::dtype_name(tensor.scalar_type()), shape});
      }
    }
    for (const auto& [name, tensor] : own->state()) {
      if (!is_number(tensor) || g > 0) continue;
      all.push_back({name_of_number(name), checkpoint::dtype_name(tensor.scalar_type()),
                     storage::Shape{}});
    }
  }
  return all;
}

}  // namespace lockstep::parallel::detail
