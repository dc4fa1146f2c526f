#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/chance.h"
#include "lockstep/kernels/detail/number.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/workers.h"

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kLowBits = 0xFFFFFFFF;

at::Tensor mixed(at::Tensor x) {
  x = x ^ x.bitwise_right_shift(16);
  x = (x * 0x7FEB352D) & kLowBits;
  x = x ^ x.bitwise_right_shift(15);
  x = (x * 0x846CA68B) & kLowBits;
  return x ^ x.bitwise_right_shift(16);
}

// Runs on a GPU without device code of ours; the bits are the same.
void drop_by_operators(at::Tensor& out, const at::Tensor& in, const Dropout& args) {
  const auto options = at::TensorOptions().dtype(at::kLong).device(in.device());
  const auto elements = at::arange(args.sample_elements, options) & kLowBits;
  const auto wide = in.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  auto from = in.as_strided({args.num_samples, args.sample_elements},
                            {args.sample_elements, 1});
  auto to = out.as_strided({args.num_samples, args.sample_elements},
                           {args.sample_elements, 1});
  for (std::int64_t s = 0; s < args.num_samples; ++s) {
    const auto key = detail::key_of(args.key, args.first_sample + s);
    const auto drawn = mixed(
        (mixed(elements ^ std::int64_t{key.low}) + std::int64_t{key.high}) & kLowBits);
    const auto kept = drawn.lt(std::int64_t{args.keep_below}).to(wide);
    to[s].copy_(from[s].to(wide) * (kept * args.scale));
  }
}

}  // namespace

void dropout(at::Tensor& out, const at::Tensor& in, const Drawn& drawn) {
  LOCKSTEP_CHECK(in.is_non_overlapping_and_dense() && in.strides() == out.strides() &&
                 in.sizes() == out.sizes() && in.device() == out.device() &&
                 in.scalar_type() == out.scalar_type());
  LOCKSTEP_CHECK(drawn.place == nullptr || (in.is_cuda() && cuda_available()));
  LOCKSTEP_CHECK(drawn.probability > 0 && drawn.probability < 1, drawn.probability);
  if (in.numel() == 0) return;
  LOCKSTEP_CHECK(drawn.num_samples > 0 && in.numel() % drawn.num_samples == 0,
                 in.numel(), " elements of ", drawn.num_samples, " samples");
  const auto number = detail::number_of(in.scalar_type());
  LOCKSTEP_CHECK(number, "no kernel for ", c10::toString(in.scalar_type()));
  const double keep = 1 - drawn.probability;
  const Dropout args{.out = out.mutable_data_ptr(),
                     .in = in.const_data_ptr(),
                     .number = *number,
                     .num_samples = drawn.num_samples,
                     .sample_elements = in.numel() / drawn.num_samples,
                     .first_sample = drawn.first_sample,
                     .key = drawn.key,
                     .place = drawn.place,
                     .layer = drawn.layer,
                     .call = drawn.call,
                     .keep_below = static_cast<std::uint32_t>(
                         std::min(std::ldexp(keep, 32), double{kLowBits})),
                     .scale = 1 / keep};
  if (in.device().is_cpu()) {
    if (in.numel() <= kDropoutBlock) return dropout_cpu(args, nullptr);
    Workers workers((in.numel() + kDropoutBlock - 1) / kDropoutBlock, 1);
    dropout_cpu(args, &workers);
  } else if (cuda_available()) {
    const c10::DeviceGuard guard(in.device());
    dropout_cuda(args, current_stream(in.device().index()));
  } else {
    drop_by_operators(out, in, args);
  }
}

}  // namespace lockstep::kernels
