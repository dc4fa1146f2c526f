#include "lockstep/optim/detail/fused.h"

namespace lockstep::optim::detail {
namespace {

using torch::Tensor;

// Numbers as the kernels round them: computed in double, rounded once.
struct Numbers {
  double rate, keep, decay, beta1, rest1, beta2, rest2, inverse_root, eps;
};

Numbers numbers_of(const kernels::Hyper& h, const OptionRange& range) {
  const double lr = h.lr * range.lr_scale;
  return {lr / h.bias1,
          1 - lr * range.weight_decay,
          range.weight_decay,
          h.beta1,
          1 - h.beta1,
          h.beta2,
          1 - h.beta2,
          1 / std::sqrt(h.bias2),
          h.eps};
}

// Operators run one by one and none fuses two, so that each rounds.
void apply_sgd(kernels::Rule rule, const Numbers& n, const Buffers& b) {
  Tensor change = b.gradients + b.weights * n.decay;
  if (rule != kernels::Rule::sgd) {
    b.first.copy_(b.first * n.beta1 + change);
    change = rule == kernels::Rule::nesterov ? change + b.first * n.beta1 : b.first;
  }
  b.weights.copy_(b.weights - change * n.rate);
}

void apply_adam(kernels::Rule rule, const Numbers& n, const Buffers& b) {
  const bool decoupled = rule == kernels::Rule::adamw;
  const auto d = decoupled ? b.gradients : b.gradients + b.weights * n.decay;
  b.first.copy_(b.first + (d - b.first) * n.rest1);
  b.second.copy_(b.second * n.beta2 + (d * d) * n.rest2);
  const auto change = b.first / (b.second.sqrt() * n.inverse_root + n.eps);
  const auto kept = decoupled ? b.weights * n.keep : b.weights;
  b.weights.copy_(kept - change * n.rate);
}

void apply_lion(const Numbers& n, const Buffers& b) {
  const auto sign = (b.first * n.beta1 + b.gradients * n.rest1).sign();
  b.weights.copy_(b.weights * n.keep - sign * n.rate);
  b.first.copy_(b.first * n.beta2 + b.gradients * n.rest2);
}

Tensor scaled(const kernels::Hyper& hyper, const Tensor& factor, const Buffers& b) {
  auto gradient = b.gradients.to(b.weights.scalar_type());
  gradient = factor.defined() ? gradient * (factor * hyper.gradient_scale)
                              : gradient * hyper.gradient_scale;
  return hyper.clip_value > 0 ? gradient.clamp(-hyper.clip_value, hyper.clip_value)
                              : gradient;
}

}  // namespace

Buffers Buffers::piece(std::int64_t begin, std::int64_t end) const {
  const auto cut = [&](const Tensor& tensor) {
    return tensor.defined() ? tensor.narrow(0, begin, end - begin) : tensor;
  };
  return {cut(weights), cut(rounded), cut(gradients), cut(first), cut(second)};
}

void update_by_operators(const OperatorUpdate& update) {
  for (const auto& range : update.ranges) {
    auto piece = update.buffers.piece(range.begin, range.end);
    const auto numbers = numbers_of(update.hyper, range);
    piece.gradients = scaled(update.hyper, update.factor, piece);
    switch (update.rule) {
      case kernels::Rule::sgd:
      case kernels::Rule::momentum:
      case kernels::Rule::nesterov:
        apply_sgd(update.rule, numbers, piece);
        break;
      case kernels::Rule::adam:
      case kernels::Rule::adamw:
        apply_adam(update.rule, numbers, piece);
        break;
      case kernels::Rule::lion:
        apply_lion(numbers, piece);
        break;
    }
    if (piece.rounded.defined()) piece.rounded.copy_(piece.weights);
  }
}

}  // namespace lockstep::optim::detail
