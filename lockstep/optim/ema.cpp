#include "lockstep/optim/ema.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/optim/state.h"

namespace lockstep::optim {

Ema::Ema(const config::EmaConfig& config, const torch::Tensor& weights)
    : config_(config),
      steps_(torch::zeros({}, torch::kInt64)),
      updates_(torch::zeros({}, torch::kInt64)) {
  const auto dtype =
      weights.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  average_ = weights.detach().to(dtype, /*non_blocking=*/false, /*copy=*/true);
}

double Ema::decay() const {
  if (!config_.warmup) return config_.decay;
  const auto n = static_cast<double>(*updates_.data_ptr<std::int64_t>());
  return std::min(config_.decay, (1 + n) / (10 + n));
}

void Ema::update(const torch::Tensor& weights) {
  LOCKSTEP_CHECK(!is_swapped_in(), "the weights are the average now");
  if (++*steps_.data_ptr<std::int64_t>() % config_.every != 0) return;
  const torch::NoGradGuard no_grad;
  const double rest = 1 - decay();
  if (weights.scalar_type() == average_.scalar_type()) {
    average_.lerp_(weights, rest);
  } else {
    average_.mul_(1 - rest).add_(weights, rest);
  }
  ++*updates_.data_ptr<std::int64_t>();
}

void Ema::swap_in(torch::Tensor& values) {
  LOCKSTEP_CHECK(!is_swapped_in(), "the average is there already");
  const torch::NoGradGuard no_grad;
  kept_ = values.detach().clone();
  values.copy_(average_);
}

void Ema::swap_out(torch::Tensor& values) {
  LOCKSTEP_CHECK(is_swapped_in(), "nothing was kept");
  const torch::NoGradGuard no_grad;
  values.copy_(kept_);
  kept_.reset();
}

NamedTensors Ema::state() const {
  return {{"average", average_}, {"steps", steps_}, {"updates", updates_}};
}

void Ema::load(const NamedTensors& state) {
  copy_state(this->state(), state, "ema");
}

}  // namespace lockstep::optim
