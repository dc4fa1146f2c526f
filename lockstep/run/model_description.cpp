#include "lockstep/run/model_description.h"

#include <algorithm>

namespace lockstep::run {
namespace {

template <typename Value>
Value sum(const std::vector<ModelUnit>& units, Value ModelUnit::*part) {
  Value total = 0;
  for (const auto& unit : units) total += static_cast<Value>(unit.count) * (unit.*part);
  return total;
}

void halve(Footprints& footprints) {
  footprints.fp32.per_sample_bytes /= 2;
  footprints.half.per_sample_bytes /= 2;
}

}  // namespace

std::int64_t ModelDescription::num_parameters() const {
  return sum(units, &ModelUnit::num_parameters);
}

std::int64_t ModelDescription::buffer_bytes() const {
  return sum(units, &ModelUnit::buffer_bytes);
}

double ModelDescription::forward_flops() const {
  return sum(units, &ModelUnit::forward_flops);
}

std::int64_t ModelDescription::operators() const {
  return sum(units, &ModelUnit::operators);
}

bool ModelDescription::can_recompute() const {
  return std::any_of(units.begin(), units.end(),
                     [](const ModelUnit& unit) { return unit.recomputable; });
}

ModelDescription ModelDescription::with_half_sequence() const {
  auto model = *this;
  model.sequence /= 2;
  model.sample_bytes /= 2;
  halve(model.backward);
  halve(model.forward);
  halve(model.own_passes.kept);
  for (auto& unit : model.units) {
    unit.forward_flops = (unit.forward_flops - unit.quadratic_flops) / 2;
    unit.quadratic_flops /= 4;
    unit.forward_flops += unit.quadratic_flops;
    unit.num_inputs /= 2;
    unit.num_outputs /= 2;
    halve(unit.kept);
  }
  return model;
}

}  // namespace lockstep::run
