#include "lockstep/parallel/detail/batch_statistics.h"

#include "lockstep/base/error.h"

namespace lockstep::parallel::detail {
namespace {

using torch::Tensor;

// The count of a rank without samples on a GPU: the operation there divides by the
// number of values it has seen so far. Adds 1e-30 of a value to the mean of the others.
constexpr double kNone = 1e-30;

std::int64_t count_of(const Tensor& input) {
  return input.numel() / input.size(1);
}

// Returns (C) as (1, C, 1, ...), for tensors like `input`.
Tensor by_channel(const Tensor& values, const Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = -1;
  return values.view(shape);
}

Tensor to_statistics(const Tensor& values, const Tensor& input) {
  return values.defined() ? values.detach().to(statistics_dtype(input)) : values;
}

std::tuple<Tensor, Tensor> mean_and_spread(const Tensor& input, double eps) {
  if (input.is_cuda()) return at::batch_norm_stats(input, eps);
  // Their dtype is what the operation computes in; they are not wanted.
  const auto unused =
      torch::zeros({2, input.size(1)}, torch::dtype(statistics_dtype(input)));
  return at::batch_norm_update_stats(input, unused[0], unused[1], 0);
}

[[noreturn]] void refuse(const Tensor& input) {
  throw Error(Fault::config, "sync_batch_norm: the ranks have fewer than 2 values a ",
              "channel together, and this one an input of ",
              ::lockstep::str(input.sizes()),
              ": there is no variance; use larger batches, or eval()");
}

// The statistics that the ranks have sent.
struct RankStatistics {
  Tensor means, spreads;  // (ranks, C)
  Tensor counts;          // (ranks)
};

void average_in(const Tensor& running, const Tensor& latest, double momentum) {
  if (running.defined()) running.mul_(1 - momentum).add_(latest, momentum);
}

// Computes in double: the values are few, and float would lose digits once more.
Statistics combined_on_cpu(const Tensor& input, const RankStatistics& parts,
                           const BatchNormOptions& options) {
  const auto& running = options.running;
  const auto counts = parts.counts.to(torch::kFloat64);
  const double total = counts.sum().item<double>();
  if (total < 1.5) refuse(input);
  const auto shares = (counts / total).unsqueeze(1);
  const auto mean = (parts.means * shares).sum(0);
  const auto var = ((parts.spreads + (parts.means - mean).square()) * shares).sum(0);
  average_in(running.mean, mean, running.momentum);
  average_in(running.var, var * (total / (total - 1)), running.momentum);
  const auto dtype = parts.means.scalar_type();
  return {mean.to(dtype), var.to(dtype), counts, options.eps};
}

Statistics combined_on_gpu(const RankStatistics& parts,
                           const BatchNormOptions& options) {
  const auto& running = options.running;
  // The operation wants all of them in one dtype.
  const auto dtype = parts.means.scalar_type();
  const bool track = running.mean.defined();
  const auto running_mean = track ? running.mean.to(dtype) : Tensor();
  const auto running_var = track ? running.var.to(dtype) : Tensor();
  const auto [mean, spread] = at::batch_norm_gather_stats_with_counts(
      parts.means, parts.means, parts.spreads, running_mean, running_var,
      running.momentum, options.eps, parts.counts);
  if (track && !running_mean.is_same(running.mean)) {
    running.mean.copy_(running_mean);
    running.var.copy_(running_var);
  }
  return {mean, spread, parts.counts.to(torch::kInt32), options.eps};
}

}  // namespace

torch::Dtype statistics_dtype(const Tensor& input) {
  return input.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
}

Tensor local_statistics(const Tensor& input, double eps) {
  const auto channels = input.size(1);
  const bool on_gpu = input.is_cuda();
  auto flat =
      torch::zeros({2 * channels + 1}, input.options().dtype(statistics_dtype(input)));
  auto count = flat.narrow(0, 2 * channels, 1);
  if (input.numel() > 0) {
    const auto [mean, spread] = mean_and_spread(input, eps);
    flat.narrow(0, 0, channels).copy_(mean);
    flat.narrow(0, channels, channels).copy_(spread);
    count.fill_(static_cast<double>(count_of(input)));
  } else if (on_gpu) {
    flat.narrow(0, channels, channels).fill_(1 / std::sqrt(eps));
    count.fill_(kNone);
  }
  return flat;
}

Statistics combined_statistics(const Tensor& input, const Tensor& all,
                               const BatchNormOptions& options) {
  const auto channels = input.size(1);
  const RankStatistics parts{all.narrow(1, 0, channels),
                             all.narrow(1, channels, channels),
                             all.select(1, 2 * channels)};
  if (!input.is_cuda()) return combined_on_cpu(input, parts, options);
  // A rank with two values knows without looking, and does not wait for the GPU.
  if (count_of(input) < 2 && parts.counts.sum().item<double>() < 1.5) refuse(input);
  return combined_on_gpu(parts, options);
}

Tensor normalised(const Tensor& input, const Affine& affine,
                  const Statistics& statistics) {
  if (input.numel() == 0) return torch::empty_like(input);
  const auto weight = to_statistics(affine.weight, input);
  const auto bias = to_statistics(affine.bias, input);
  if (input.is_cuda()) {
    return at::batch_norm_elemt(input, weight, bias, statistics.mean, statistics.spread,
                                statistics.eps);
  }
  return std::get<0>(at::native_batch_norm(input, weight, bias, statistics.mean,
                                           statistics.spread, false, 0,
                                           statistics.eps));
}

GradientSums gradient_sums(const Tensor& gradient, const Tensor& input,
                           const Statistics& statistics) {
  if (input.numel() == 0) {
    const auto none = torch::zeros_like(statistics.mean);
    return {torch::cat({none, none}), none, none.clone()};
  }
  if (input.is_cuda()) {
    // The weight is asked for its dtype only.
    const auto [dy, dy_x, weight, bias] = at::batch_norm_backward_reduce(
        gradient, input, statistics.mean, statistics.spread, statistics.mean, true,
        true, true);
    return {torch::cat({dy, dy_x}), weight, bias};
  }
  const auto [unused, weight, bias] = at::native_batch_norm_backward(
      gradient, input, {}, statistics.mean, statistics.spread, {}, {}, false,
      statistics.eps, {false, true, true});
  return {torch::cat({bias, weight}), weight, bias};
}

Tensor input_gradient(const BackwardTensors& tensors, const Statistics& statistics) {
  const auto& [gradient, input, weight, sums] = tensors;
  if (input.numel() == 0) return torch::zeros_like(input);
  const auto channels = input.size(1);
  const auto dy = sums.narrow(0, 0, channels);
  const auto dy_x = sums.narrow(0, channels, channels);
  const auto scale = to_statistics(weight, input);
  if (input.is_cuda()) {
    return at::batch_norm_backward_elemt(gradient, input, statistics.mean,
                                         statistics.spread, scale, dy, dy_x,
                                         statistics.counts);
  }
  auto slope = (statistics.spread + statistics.eps).rsqrt();
  if (scale.defined()) slope = slope * scale;
  const auto per_value = slope / statistics.counts.sum().item<double>();
  const auto x = input.to(statistics_dtype(input));
  // slope * (dy - mean(dy) - x^ mean(dy x^)), where x^ is the normalised input: the
  // last two terms are an affine function of x^, for which there is a fast operation.
  auto result = std::get<0>(at::native_batch_norm(x, -per_value * dy_x, -per_value * dy,
                                                  statistics.mean, statistics.spread,
                                                  false, 0, statistics.eps));
  result.addcmul_(gradient.to(x.scalar_type()), by_channel(slope, input));
  return result.to(input.scalar_type());
}

}  // namespace lockstep::parallel::detail
