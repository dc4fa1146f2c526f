#include "lockstep/task/detail/one_loss.h"

#include <limits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/task/primary.h"

namespace lockstep::task::detail {

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

double mean_or_nan(double total, double count) {
  return count > 0 ? total / count : std::numeric_limits<double>::quiet_NaN();
}

void check_columns(const torch::Tensor& scores, std::int64_t expected,
                   std::string_view kind) {
  const auto own = scores.dim() > 1 ? scores.size(-1) : 1;
  if (own == expected) return;
  throw Error(Fault::config, "eval.metrics: the model outputs ", own, " ", kind,
              ", but the task has ", expected,
              ", as the data set says; give the model's last layer as many, or leave "
              "out what is measured for each of them");
}

torch::Tensor DeviceCopies::on(const torch::Device& device) const {
  if (!original_.defined() || original_.device() == device) return original_;
  const std::lock_guard lock(mutex_);
  for (const auto& copy : copies_) {
    if (copy.device() == device) return copy;
  }
  return copies_.emplace_back(original_.to(device));
}

OneLoss::OneLoss(std::string_view name, Fields fields, std::int64_t per_sample)
    : name_(name), fields_(std::move(fields)), losses_{{.per_sample = per_sample}} {}

void OneLoss::choose_primary(const std::string& wanted, const std::string& standard) {
  primary_ = find_primary(*this, wanted.empty() ? standard : wanted, "task.primary");
}

}  // namespace lockstep::task::detail
