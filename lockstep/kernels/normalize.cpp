#include "lockstep/kernels/normalize.h"

#include <array>
#include <cmath>

#include <c10/core/DeviceGuard.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"

namespace lockstep::kernels {
namespace {

// A byte has 256 values: the result for each is computed once.
using Table = std::array<float, 256>;

Table make_table(float scale, float shift) {
  Table table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = std::fma(scale, static_cast<float>(i), shift);
  }
  return table;
}

void normalize_cpu(const Normalize& args) {
  std::array<Table, kMostChannels> tables;
  for (int c = 0; c < args.num_channels; ++c) {
    tables[static_cast<std::size_t>(c)] = make_table(args.scale[c], args.shift[c]);
  }
  std::size_t channel = 0;
  for (std::int64_t i = 0; i < args.num_elements;) {
    const auto& table = tables[channel];
    for (const auto end = i + args.plane; i < end; ++i) {
      args.out[i] = table[args.in[i]];
    }
    channel = (channel + 1) % static_cast<std::size_t>(args.num_channels);
  }
}

// Runs on a GPU without device code of ours.
void normalize_by_operators(torch::Tensor& out, const torch::Tensor& in,
                            std::span<const ScaleShift> channels) {
  const bool single = channels.size() == 1;
  for (std::size_t c = 0; c < channels.size(); ++c) {
    Table table = make_table(channels[c].scale, channels[c].shift);
    const auto values =
        torch::from_blob(table.data(), {static_cast<std::int64_t>(table.size())})
            .to(in.device());
    const auto at = static_cast<std::int64_t>(c);
    const auto from = single ? in : in.select(1, at);
    auto to = single ? out : out.select(1, at);
    to.copy_(values.index_select(0, from.reshape({-1}).to(torch::kInt32))
                 .view(from.sizes()));
  }
}

}  // namespace

void normalize(torch::Tensor& out, const torch::Tensor& in,
               std::span<const ScaleShift> channels) {
  LOCKSTEP_CHECK(in.scalar_type() == torch::kUInt8, in.scalar_type());
  LOCKSTEP_CHECK(out.scalar_type() == torch::kFloat32, out.scalar_type());
  LOCKSTEP_CHECK(in.numel() == out.numel() && in.device() == out.device());
  LOCKSTEP_CHECK(in.is_non_overlapping_and_dense() &&
                 out.is_non_overlapping_and_dense());
  LOCKSTEP_CHECK(!channels.empty() && channels.size() <= kMostChannels);
  if (in.numel() == 0) return;
  Normalize args{.out = out.data_ptr<float>(),
                 .in = in.data_ptr<std::uint8_t>(),
                 .num_channels = static_cast<int>(channels.size()),
                 .plane = in.numel(),
                 .num_elements = in.numel()};
  if (channels.size() > 1) {
    LOCKSTEP_CHECK(in.is_contiguous() && out.is_contiguous() && in.dim() > 1 &&
                   in.size(1) == args.num_channels);
    args.plane = in.numel() / in.size(0) / in.size(1);
  }
  for (std::size_t c = 0; c < channels.size(); ++c) {
    args.scale[c] = channels[c].scale;
    args.shift[c] = channels[c].shift;
  }
  if (in.device().is_cpu()) {
    normalize_cpu(args);
  } else if (cuda_available()) {
    const c10::DeviceGuard guard(in.device());  // a default stream is the current one's
    normalize_cuda(args, current_stream(in.device().index()));
  } else {
    normalize_by_operators(out, in, channels);
  }
}

void normalize(torch::Tensor& out, const torch::Tensor& in, const ScaleShift& all) {
  normalize(out, in, std::span(&all, 1));
}

}  // namespace lockstep::kernels
