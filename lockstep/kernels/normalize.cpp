#include "lockstep/kernels/normalize.h"

#include <array>
#include <cmath>

#include <c10/core/DeviceGuard.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"

namespace lockstep::kernels {
namespace {

// A byte has 256 values: what becomes of each is computed once.
using Table = std::array<float, 256>;

Table make_table(float scale, float shift) {
  Table table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = std::fma(scale, static_cast<float>(i), shift);
  }
  return table;
}

void normalize_cpu(const Normalize& args) {
  const Table table = make_table(args.scale, args.shift);
  for (std::int64_t i = 0; i < args.num_elements; ++i) args.out[i] = table[args.in[i]];
}

// For a GPU without device code of ours.
void normalize_by_operators(torch::Tensor& out, const torch::Tensor& in, float scale,
                            float shift) {
  Table table = make_table(scale, shift);
  const auto values =
      torch::from_blob(table.data(), {static_cast<std::int64_t>(table.size())})
          .to(in.device());
  out.view({-1}).copy_(values.index_select(0, in.view({-1}).to(torch::kInt32)));
}

}  // namespace

void normalize(torch::Tensor& out, const torch::Tensor& in, float scale, float shift) {
  LOCKSTEP_CHECK(in.scalar_type() == torch::kUInt8, in.scalar_type());
  LOCKSTEP_CHECK(out.scalar_type() == torch::kFloat32, out.scalar_type());
  LOCKSTEP_CHECK(in.numel() == out.numel() && in.device() == out.device());
  LOCKSTEP_CHECK(in.is_non_overlapping_and_dense() &&
                 out.is_non_overlapping_and_dense());
  const Normalize args{out.data_ptr<float>(), in.data_ptr<std::uint8_t>(), scale, shift,
                       in.numel()};
  if (in.device().is_cpu()) {
    normalize_cpu(args);
  } else if (cuda_available()) {
    const c10::DeviceGuard guard(in.device());  // a default stream is the current one's
    normalize_cuda(args, current_stream(in.device().index()));
  } else {
    normalize_by_operators(out, in, scale, shift);
  }
}

}  // namespace lockstep::kernels
