#include "lockstep/parallel/update.h"

#include <algorithm>

#include "lockstep/parallel/detail/spans.h"

namespace lockstep::parallel {

std::vector<optim::Elements> unused_elements(const Engine& engine, const Shard& shard) {
  const auto& unused = engine.globally_unused();  // in order
  std::vector<optim::Elements> elements;
  if (unused.empty()) return elements;
  const auto& group = engine.layout()[shard.group];
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    const auto parameter = group.slots[i].parameter;
    if (!std::binary_search(unused.begin(), unused.end(), parameter)) continue;
    const auto span =
        detail::within(shard, group.slots[i].offset, detail::end_of(group, i));
    if (span.begin < span.end) elements.push_back(span);
  }
  return elements;
}

void update(Engine& engine, PieceStep step) {
  const torch::NoGradGuard no_grad;
  const auto& shard = engine.owned().at(step.index);
  auto values = engine.owned_values(step.index);
  step.arguments.unused = unused_elements(engine, shard);
  step.optimizer.step(values, engine.owned_gradients(step.index), step.arguments);
  engine.updated(step.index);
}

}  // namespace lockstep::parallel
