#include "lockstep/parallel/detail/replicated_state.h"

#include "lockstep/parallel/detail/slot_pieces.h"

namespace lockstep::parallel::detail {

ReplicatedState::ReplicatedState(const Parts& parts) : parts_(parts) {
  for (const auto& frozen : parts.engine.frozen()) {
    sharded_.insert(frozen.tensor.unsafeGetTensorImpl());
  }
}

// Returns this rank's shards of parameters that are not trained (stage 3).
checkpoint::Pieces ReplicatedState::frozen_shards(bool to_save) const {
  checkpoint::Pieces pieces;
  const auto& owned = parts_.engine.frozen_owned();
  for (std::size_t i = 0; i < owned.size() && parts_.saves_frozen; ++i) {
    const auto part = to_save ? to_write(owned[i], parts_.engine.replica()) : owned[i];
    for (const auto& slot : parts_.engine.frozen_layout()[owned[i].group].slots) {
      const auto& parameter = parts_.engine.frozen()[slot.parameter];
      add_piece(pieces, {parameter, slot, part, owned[i]},
                {"model." + parameter.name, parts_.engine.frozen_values(i)});
    }
  }
  return pieces;
}

// Returns parameters that are not trained and that each rank has, and buffers.
checkpoint::Pieces ReplicatedState::untrained() const {
  checkpoint::Pieces pieces;
  for (const auto& item : parts_.module.named_parameters()) {
    if (item.value().requires_grad() || !parts_.saves_frozen) continue;
    if (sharded_.contains(item.value().unsafeGetTensorImpl())) continue;
    pieces.push_back(checkpoint::whole_piece("model." + item.key(), item.value()));
  }
  for (const auto& item : parts_.module.named_buffers()) {
    pieces.push_back(
        checkpoint::whole_piece("model." + item.key(), item.value(), true));
  }
  return pieces;
}

checkpoint::Pieces ReplicatedState::to_save() const {
  parts_.engine.wait_for_values();
  auto pieces = parts_.optimizers.pieces(/*to_save=*/true);
  for (auto& piece : frozen_shards(/*to_save=*/true))
    pieces.push_back(std::move(piece));
  const auto rest = untrained();
  for (std::size_t i = 0; i < rest.size(); ++i) {
    // Running statistics are rank 0's; of constant tensors each rank writes a part.
    const auto writer = rest[i].changes_in_forward ? 0 : i % parts_.ranks;
    if (writer == parts_.rank) pieces.push_back(rest[i]);
  }
  return pieces;
}

checkpoint::Pieces ReplicatedState::to_load() const {
  parts_.engine.wait_for_values();
  auto pieces = parts_.optimizers.pieces(/*to_save=*/false);
  for (auto& piece : frozen_shards(/*to_save=*/false))
    pieces.push_back(std::move(piece));
  for (auto& piece : untrained()) pieces.push_back(std::move(piece));
  return pieces;
}

std::vector<checkpoint::Expected> ReplicatedState::expected() const {
  auto all = parts_.optimizers.expected();
  for (const auto& parameter : parts_.engine.frozen()) {
    if (!parts_.saves_frozen) break;
    all.push_back({"model." + parameter.name,
                   checkpoint::dtype_name(parameter.tensor.scalar_type()),
                   parameter.tensor.sizes().vec()});
  }
  for (const auto& piece : untrained()) {
    all.push_back(
        {piece.name, checkpoint::dtype_name(piece.data.scalar_type()), piece.shape});
  }
  return all;
}

std::vector<std::string> ReplicatedState::order() const {
  std::vector<std::string> names;
  for (const auto i : parts_.engine.order())
    names.push_back(parts_.engine.parameters()[i].name);
  return names;
}

}  // namespace lockstep::parallel::detail
