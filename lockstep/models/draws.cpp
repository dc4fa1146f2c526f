#include "lockstep/models/draws.h"

#include <algorithm>
#include <mutex>

namespace lockstep::models {
namespace {

torch::Tensor state_of(at::Generator generator) {
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

Draws::Draws(const std::vector<at::Generator>& generators) {
  for (const auto& generator : generators) {
    const bool known = std::any_of(places_.begin(), places_.end(),
                                   [&](const auto& p) { return p.first == generator; });
    if (!known) places_.emplace_back(generator, torch::Tensor());
  }
  take();
}

void Draws::take() {
  for (auto& [generator, state] : places_) state = state_of(generator);
}

void Draws::restore() const {
  for (auto [generator, state] : places_) {
    const std::lock_guard lock(generator.mutex());
    generator.set_state(state);
  }
}

bool Draws::are_current() const {
  return std::all_of(places_.begin(), places_.end(), [](const auto& place) {
    return torch::equal(state_of(place.first), place.second);
  });
}

}  // namespace lockstep::models
