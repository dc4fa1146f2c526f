#include "lockstep/precision/loss_scaler.h"

#include <algorithm>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::precision {
namespace {

torch::Tensor number(double value) {
  return torch::tensor(value, torch::kFloat64);
}

}  // namespace

LossScaler::LossScaler(const config::PrecisionConfig& config)
    : config_(config), active_(config::scales_loss(config.mode)) {
  if (active_)
    scale_ = config.loss_scale > 0 ? config.loss_scale : config.initial_scale;
}

void LossScaler::update(bool overflow) {
  if (!active_) return;
  if (overflow) ++num_overflows_;
  if (config_.loss_scale > 0) return;
  if (overflow) {
    back_off();
  } else {
    grow();
  }
}

void LossScaler::back_off() {
  num_good_ = 0;
  if (++num_borne_ < config_.hysteresis) return;
  num_borne_ = config_.hysteresis;  // from now on at every overflow, until it grows
  if (scale_ <= config_.min_scale) {
    throw Error(Fault::config,
                "precision.mode: gradients overflow fp16 even with a loss ",
                "scale of ", scale_, " (precision.min_scale ", config_.min_scale,
                "); lower optim.lr, or set precision.mode to bf16 or fp32");
  }
  scale_ = std::max(scale_ * config_.backoff_factor, config_.min_scale);
}

void LossScaler::grow() {
  if (++num_good_ < config_.growth_interval) return;
  num_good_ = 0;
  num_borne_ = 0;
  const double larger = scale_ * config_.growth_factor;
  // The loss is float32: beyond its range there is nothing to gain.
  if (larger <= static_cast<double>(std::numeric_limits<float>::max())) scale_ = larger;
}

std::vector<std::pair<std::string, torch::Tensor>> LossScaler::state() const {
  return {{"scale", number(scale_)},
          {"good", number(static_cast<double>(num_good_))},
          {"borne", number(static_cast<double>(num_borne_))},
          {"overflows", number(static_cast<double>(num_overflows_))}};
}

void LossScaler::load(const std::vector<std::pair<std::string, torch::Tensor>>& state) {
  const auto find = [&](const std::string& name) {
    const auto found = std::find_if(state.begin(), state.end(), [&](const auto& item) {
      return item.first == name;
    });
    if (found == state.end()) {
      throw Error(Fault::config, "precision: the state of the loss scale has no '",
                  name, "'; it was saved by another version");
    }
    return found->second.item<double>();
  };
  scale_ = find("scale");
  num_good_ = static_cast<std::int64_t>(find("good"));
  num_borne_ = static_cast<std::int64_t>(find("borne"));
  num_overflows_ = static_cast<std::int64_t>(find("overflows"));
}

}  // namespace lockstep::precision
