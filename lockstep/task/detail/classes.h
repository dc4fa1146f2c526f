#pragma once

#include <optional>
#include <string_view>

#include "lockstep/task/detail/one_loss.h"

namespace lockstep::task::detail {

// Targets that are classes, one after the other: N of them.
struct ClassTargets {
  torch::Tensor targets;  // (N) int64, or (N, classes): shares
  Counted counted;        // each (N), or undefined

  bool soft() const { return targets.is_floating_point(); }
};

// Returns targets of (B) or (B, T), or with shares (B, classes) or (B, T, classes).
ClassTargets class_targets(const Named& batch, const Fields& fields);

// Returns (N, classes), of (B, classes) or (B, T, classes). Throws Fault::config for
// others.
torch::Tensor class_scores(const Named& outputs, const Fields& fields);

struct ClassFields {
  Fields fields;
  std::optional<std::int64_t> ignore_index;
};

// Returns the input of a metric; shares of classes become the largest of them.
Answers class_answers(const Named& outputs, const Named& batch,
                      const ClassFields& where);

struct ClassLossOptions {
  std::string_view name;
  Fields fields;
  CrossEntropyOptions loss;
  std::int64_t num_classes = 0;  // 0: any
  std::int64_t per_sample = 1;
};

// Cross-entropy of classes or tokens. Weights of classes and label smoothing are for
// training only. sums() throws Fault::config for outputs of too few classes, and with
// shares for another number of classes.
class ClassLoss : public OneLoss {
 public:
  explicit ClassLoss(const ClassLossOptions& options);

  Sums sums(const Named& outputs, const Named& batch, const Pass& pass) const override;
  Sums weights(const Named& batch, const Pass& pass) const override;
  torch::Tensor plain_targets(const Named& batch) const override;

 protected:
  const std::optional<std::int64_t>& ignore_index() const noexcept {
    return options_.ignore_index;
  }

 private:
  CrossEntropyOptions options_for(const Pass& pass, const torch::Device& device) const;
  void check_rows(const Named& outputs, const Named& batch) const;
  void check_width(std::int64_t own, const ClassTargets& right) const;

  CrossEntropyOptions options_;
  std::int64_t num_classes_;
  DeviceCopies class_weights_;
};

}  // namespace lockstep::task::detail
