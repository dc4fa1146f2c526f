#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/column_parts.h"
#include "lockstep/kernels/detail/device.h"

namespace lockstep::kernels {
namespace {

using namespace detail;

template <typename T, int kCount>
__global__ void __launch_bounds__(kStripThreads)
    pack_kernel(PackColumns args, Strip strip) {
  const std::int64_t column = strip.column(kCount);
  const std::int64_t part = column / args.width;
  const bool copies = args.num_parts > 1 || args.parts[0] != args.out;
  float sums[kCount] = {};
  if (column < strip.width) {
    const void* from =
        part == 0 ? args.parts[0] : (part == 1 ? args.parts[1] : args.parts[2]);
    const auto* in = static_cast<const T*>(from) + column - part * args.width;
    auto* out = static_cast<T*>(args.out) + column;
#pragma unroll 8
    for (std::int64_t row = strip.first_row(); row < strip.rows; row += strip.step()) {
      const auto read = load<kCount>(in + row * args.width);
      if (copies) store<kCount>(out + row * strip.width, read);
#pragma unroll
      for (int k = 0; k < kCount; ++k) sums[k] += wide(read.at[k]);
    }
  }
  if (args.sums.at != nullptr) leave_part<kCount>(strip, sums);
}

template <typename T, int kCount>
void launch(const PackColumns& args, CUstream_st* stream) {
  const Strip strip{args.rows, args.num_parts * args.width, args.workspace};
  const auto grid = strip_grid(strip, kCount);
  pack_kernel<T, kCount>
      <<<grid, dim3(kStripLanes, kStripRows), 0, stream>>>(args, strip);
  if (args.sums.at == nullptr) return;
  check_launch("pack_columns");
  add_parts<T>({.parts = args.workspace,
                .sums = {args.sums},
                .num_sums = 1,
                .num_parts = grid.y,
                .width = strip.width},
               stream);
}

}  // namespace

void pack_columns_cuda(const PackColumns& args, CUstream_st* stream) {
  if (args.rows * args.width * args.num_parts == 0) return;
  with_device_element(args.number, [&](auto element) {
    using T = decltype(element);
    bool aligned = args.width % kVector<T> == 0 && is_aligned(args.out);
    for (int i = 0; i < args.num_parts; ++i) aligned &= is_aligned(args.parts[i]);
    if (aligned) {
      launch<T, kVector<T>>(args, stream);
    } else {
      launch<T, 1>(args, stream);
    }
  });
  check_launch("pack_columns");
}

}  // namespace lockstep::kernels
