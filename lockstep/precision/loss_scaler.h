#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "lockstep/config/precision.h"

namespace lockstep::precision {

// The factor on an fp16 loss. Too small, and small gradients become 0; too large, and
// large ones overflow: it grows after a while without overflow and backs off after one.
// In every other mode it is 1 and stays so.
//
// The loss is multiplied by scale(); the gradients, by 1 / scale(), when they are used.
// A step whose gradients overflowed on any rank is skipped by all of them, and each
// calls update() with the same flag, so that the factor stays the same everywhere.
class LossScaler {
 public:
  explicit LossScaler(const config::PrecisionConfig& config);

  bool active() const noexcept { return active_; }
  double scale() const noexcept { return scale_; }

  // To be called after every step, done or skipped. A fixed factor stays. Throws
  // Fault::config at an overflow with a factor that is at precision.min_scale already.
  void update(bool overflow);

  std::int64_t num_overflows() const noexcept { return num_overflows_; }

  // Returns numbers for checkpoints, as tensors without dimension.
  std::vector<std::pair<std::string, torch::Tensor>> state() const;
  void load(const std::vector<std::pair<std::string, torch::Tensor>>& state);

 private:
  void back_off();
  void grow();

  config::PrecisionConfig config_;
  bool active_;
  double scale_ = 1;
  std::int64_t num_good_ = 0;   // steps without overflow since one, or since growth
  std::int64_t num_borne_ = 0;  // overflows since the factor last grew
  std::int64_t num_overflows_ = 0;
};

}  // namespace lockstep::precision
