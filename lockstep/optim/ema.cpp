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

double Ema::decay(std::int64_t updates) const {
  if (!config_.warmup) return config_.decay;
  const auto n = static_cast<double>(updates);
  return std::min(config_.decay, (1 + n) / (10 + n));
}

void Ema::update(const torch::Tensor& weights) {
  LOCKSTEP_CHECK(!is_swapped_in(), "the weights are the average now");
  const double rest = this->rest(0);
  count_step();
  if (rest == 0) return;
  const torch::NoGradGuard no_grad;
  if (weights.scalar_type() == average_.scalar_type()) {
    average_.lerp_(weights, rest);
  } else {
    average_.mul_(1 - rest).add_(weights, rest);
  }
}

double Ema::rest(int later) const {
  const auto steps = *steps_.data_ptr<std::int64_t>();
  auto updates = *updates_.data_ptr<std::int64_t>();
  for (int i = 1; i <= later; ++i) updates += is_due(steps + i) ? 1 : 0;
  return is_due(steps + later + 1) ? 1 - decay(updates) : 0;
}

void Ema::launch(const torch::Tensor& weights, const torch::Tensor& rest) {
  LOCKSTEP_CHECK(!is_swapped_in(), "the weights are the average now");
  LOCKSTEP_CHECK(weights.scalar_type() == average_.scalar_type());
  const torch::NoGradGuard no_grad;
  average_.lerp_(weights, rest.to(average_.scalar_type()));
}

void Ema::count_step() {
  if (is_due(++*steps_.data_ptr<std::int64_t>())) {
    ++*updates_.data_ptr<std::int64_t>();
  }
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
