#include "lockstep/describe/detail/own_passes.h"

#include <algorithm>

#include "lockstep/models/gpt_places.h"
#include "lockstep/train/own_passes.h"

namespace lockstep::describe::detail {
namespace {

// The line through two numbers of samples.
run::Footprint line(const models::GptPlaces::Sizes& sizes, std::int64_t tokens) {
  constexpr std::int64_t kFew = 4;
  const auto at = [&](std::int64_t samples) {
    return models::gpt_pass_bytes(sizes, samples * tokens);
  };
  const auto few = at(kFew);
  const auto of_sample = (at(2 * kFew) - few) / kFew;
  return {of_sample, std::max<std::int64_t>(0, few - kFew * of_sample)};
}

}  // namespace

run::OwnPasses describe_own_passes(const config::Config& config,
                                   const models::Model& model,
                                   const models::Shape& shape) {
  run::OwnPasses own;
  if (config.model.name != "gpt") return own;
  own.exist = true;
  own.obstacle = train::obstacle_in_model(config, shape);
  models::GptPlaces::Sizes sizes{
      .layers = config.model.layers,
      .hidden = config.model.hidden,
      .heads = config.model.heads,
      .rows = model.named_parameters()["wte.weight"].size(0)};
  const auto tokens = shape.input.at(0);
  own.kept.fp32 = line(sizes, tokens);
  sizes.element /= 2;
  own.kept.half = line(sizes, tokens);
  return own;
}

}  // namespace lockstep::describe::detail
