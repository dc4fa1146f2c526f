#include "lockstep/base/error.h"
#include "lockstep/parallel/detail/strategies.h"

namespace lockstep::parallel {

std::unique_ptr<Strategy> make_strategy(const StrategyParts& parts) {
  const auto& config = parts.config;
  const auto& world = parts.world;
  switch (config.parallel.strategy) {
    case config::Strategy::single:
      if (world.size() > 1) break;
      [[fallthrough]];
    case config::Strategy::ddp:
    case config::Strategy::data_parallel:
    case config::Strategy::zero:
      return detail::make_replicated(parts);
    default:
      break;
  }
  if (config.parallel.strategy == config::Strategy::single) {
    throw Error(Fault::config,
                "parallel.strategy: single was requested, but there are ", world.size(),
                " ranks; set parallel.strategy=ddp");
  }
  throw Error(Fault::config, "parallel.strategy: ", name_of(config.parallel.strategy),
              " is none of single, ddp, data_parallel and zero; set one of these");
}

bool defers_memory(const config::ParallelConfig& parallel, const comm::World& world) {
  return world.size() > 1 && parallel.strategy == config::Strategy::zero;
}

std::int64_t count_elements(const std::vector<Parameter>& parameters) {
  std::int64_t count = 0;
  for (const auto& parameter : parameters) count += parameter.tensor.numel();
  return count;
}

std::vector<std::string> bad_gradients(Strategy& strategy) {
  std::vector<std::string> names;
  strategy.visit_gradients([&](const Parameter& parameter, const torch::Tensor& grad) {
    if (!grad.defined() || grad.isfinite().all().item<bool>()) return;
    names.push_back(parameter.name);
  });
  return names;
}

}  // namespace lockstep::parallel
