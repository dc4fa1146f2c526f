#include "lockstep/task/losses.h"

#include <limits>

#include "lockstep/base/error.h"

// Operators are those whose shapes LibTorch knows without Python, so that a model with
// its loss can be described before there is memory for it. Some of PyTorch's own losses
// are not.
namespace lockstep::task {
namespace {

using torch::Tensor;

// Nothing is ignored: no target has it. Not PyTorch's -100, which is a label in use,
// and not the least int64, of which an int would keep a 0.
constexpr std::int64_t kNoIndex = std::numeric_limits<std::int32_t>::min();

// The loss is filled, not multiplied by the mask: a loss that does not count may be an
// infinity. And not torch::where, which copies its scalar to the device and waits for
// that.
Tensor counted_sum(Tensor each, const Counted& counted) {
  if (counted.weights.defined()) {
    each = each * counted.weights.to(each.scalar_type());
  }
  return or_zero(each, counted.mask).sum();
}

// `each` is the weight of a target by itself; undefined: 1.
Tensor counted_weight(const Tensor& each, const Counted& counted) {
  Tensor weights = each;
  if (counted.weights.defined()) {
    weights = weights.defined() ? weights * counted.weights : counted.weights;
  }
  if (!counted.mask.defined()) {
    return weights.defined() ? weights.sum(torch::kFloat64) : Tensor();
  }
  if (!weights.defined()) return counted.mask.sum(torch::kFloat64);
  return or_zero(weights, counted.mask).sum(torch::kFloat64);
}

// What focal multiplies by; `wrong` is the probability of what is not right. A power of
// 0 with an exponent below 1 has no gradient: a little is added, which changes no
// value.
Tensor hardness(const Tensor& wrong, double gamma) {
  return (wrong + std::numeric_limits<float>::min()).pow(gamma);
}

Tensor focal_of_shares(const Tensor& log_p, const Tensor& shares, double gamma,
                       const Tensor& class_weights) {
  auto each = shares * hardness(-log_p.expm1(), gamma) * log_p;
  if (class_weights.defined()) each = each * class_weights;
  return -each.sum(1);
}

Tensor focal(const Tensor& logits, const Tensor& targets, double gamma,
             const Tensor& class_weights) {
  const auto log_p = logits.log_softmax(1);
  if (targets.is_floating_point()) {
    return focal_of_shares(log_p, targets, gamma, class_weights);
  }
  const auto of_target = log_p.gather(1, targets.unsqueeze(1)).squeeze(1);
  const auto each = -hardness(-of_target.expm1(), gamma) * of_target;
  if (!class_weights.defined()) return each;
  return each * class_weights.gather(0, targets);
}

Tensor with(const Tensor& mask, const Tensor& other) {
  return mask.defined() ? mask & other : other;
}

}  // namespace

Tensor valid_classes(const Tensor& targets,
                     const std::optional<std::int64_t>& ignore_index,
                     const Tensor& mask) {
  if (!ignore_index || targets.is_floating_point()) return mask;
  return with(mask, targets.ne(*ignore_index));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options, const Counted& counted) {
  const bool soft = targets.is_floating_point();
  const auto& weights = options.class_weights;
  const auto class_weights =
      weights.defined() ? weights.to(logits.scalar_type()) : weights;
  if (options.focal_gamma == 0 && counted.all_alike()) {
    const auto index = soft ? kNoIndex : options.ignore_index.value_or(kNoIndex);
    return torch::cross_entropy_loss(logits, targets, class_weights, at::Reduction::Sum,
                                     index, options.label_smoothing);
  }
  const auto valid = valid_classes(targets, options.ignore_index, counted.mask);
  const auto right = soft ? targets : or_zero(targets, valid);
  const auto each =
      options.focal_gamma > 0
          ? focal(logits, right, options.focal_gamma, class_weights)
          : torch::cross_entropy_loss(logits, right, class_weights, at::Reduction::None,
                                      kNoIndex, options.label_smoothing);
  return counted_sum(each, {valid, counted.weights});
}

Tensor cross_entropy_weight(const Tensor& targets, const CrossEntropyOptions& options,
                            const Counted& counted) {
  const auto valid = valid_classes(targets, options.ignore_index, counted.mask);
  Tensor each;
  if (options.class_weights.defined() && !targets.is_floating_point()) {
    const auto weights = options.class_weights.to(targets.device());
    each = weights.gather(0, or_zero(targets, valid));
  }
  return counted_weight(each, {valid, counted.weights});
}

Labels known_labels(const Tensor& targets, config::Uncertain uncertain,
                    const Tensor& mask) {
  const auto type = targets.scalar_type();
  auto values = targets;
  auto valid = mask;
  if (type != torch::kBool && type != torch::kUInt8) {
    const auto unsure = targets.eq(-1);
    if (uncertain == config::Uncertain::ignore) {
      valid = with(valid, unsure.bitwise_not());
    } else {
      const auto meant = uncertain == config::Uncertain::one ? 1 : 0;
      values = values.masked_fill(unsure, meant);
    }
    if (targets.is_floating_point()) valid = with(valid, targets.eq(targets));
  }
  return {or_zero(values, valid), valid};
}

Tensor binary_cross_entropy(const Tensor& logits, const Tensor& targets,
                            const BinaryCrossEntropyOptions& options,
                            const Counted& counted) {
  const auto labels = known_labels(targets, options.uncertain, counted.mask);
  const auto is = labels.values.to(logits.scalar_type());
  auto miss = torch::softplus(-logits);  // of a label that is there
  if (options.positive_weights.defined()) {
    const auto weights = options.positive_weights.to(logits.options());
    miss = miss * ((weights - 1) * is + 1);
  }
  auto each = (1 - is) * logits + miss;
  if (options.focal_gamma > 0) {
    const auto wrong = (1 - is) * logits.sigmoid() + is * (-logits).sigmoid();
    each = each * hardness(wrong, options.focal_gamma);
  }
  return counted_sum(each, {labels.valid, counted.weights});
}

Tensor binary_cross_entropy_weight(const Tensor& targets,
                                   const BinaryCrossEntropyOptions& options,
                                   const Counted& counted) {
  const auto labels = known_labels(targets, options.uncertain, counted.mask);
  return counted_weight({}, {labels.valid, counted.weights});
}

Tensor regression_loss(const Tensor& outputs, const Tensor& targets,
                       const RegressionLossOptions& options, const Counted& counted) {
  const auto error = outputs - or_zero(targets, counted.mask).to(outputs.scalar_type());
  if (options.kind == config::Criterion::mse)
    return counted_sum(error.square(), counted);
  if (options.kind == config::Criterion::mae) {
    return counted_sum(error * error.detach().sgn(), counted);
  }
  LOCKSTEP_CHECK(options.kind == config::Criterion::huber);
  // s * (e - s / 2) with s = e up to delta: e^2 / 2, then a line; its slope is s.
  const auto delta = options.huber_delta;
  const auto slope = error.detach().clamp(-delta, delta);
  return counted_sum(slope * (error - slope / 2), counted);
}

Tensor regression_weight(const Counted& counted) {
  return counted_weight({}, counted);
}

}  // namespace lockstep::task
