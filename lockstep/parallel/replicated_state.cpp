#include "lockstep/parallel/detail/replicated_state.h"

namespace lockstep::parallel::detail {

// Returns parameters that are not trained, and buffers.
checkpoint::Pieces ReplicatedState::untrained() const {
  checkpoint::Pieces pieces;
  for (const auto& item : parts_.module.named_parameters()) {
    if (item.value().requires_grad() || !parts_.saves_frozen) continue;
    pieces.push_back(checkpoint::whole_piece("model." + item.key(), item.value()));
  }
  for (const auto& item : parts_.module.named_buffers()) {
    pieces.push_back(
        checkpoint::whole_piece("model." + item.key(), item.value(), true));
  }
  return pieces;
}

checkpoint::Pieces ReplicatedState::to_save() const {
  auto pieces = parts_.optimizers.pieces(/*to_save=*/true);
  const auto rest = untrained();
  for (std::size_t i = 0; i < rest.size(); ++i) {
    // Running statistics are rank 0's; of constant tensors each rank writes a part.
    const auto writer = rest[i].changes_in_forward ? 0 : i % parts_.ranks;
    if (writer == parts_.rank) pieces.push_back(rest[i]);
  }
  return pieces;
}

checkpoint::Pieces ReplicatedState::to_load() const {
  auto pieces = parts_.optimizers.pieces(/*to_save=*/false);
  for (auto& piece : untrained()) pieces.push_back(std::move(piece));
  return pieces;
}

std::vector<checkpoint::Expected> ReplicatedState::expected() const {
  auto all = parts_.optimizers.expected();
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
