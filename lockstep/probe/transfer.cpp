#include "lockstep/probe/transfer.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::probe {
namespace {

using torch::Tensor;

// Returns words that differ from each other and from those of another seed.
Tensor pattern(std::int64_t words, std::int64_t seed) {
  constexpr std::int64_t kOdd = 0x1E3779B97F4A7C15;
  return torch::arange(words, torch::kInt64).mul_(kOdd).add_(seed * kOdd + seed);
}

// `way` is "from cuda:0 to cuda:1".
std::string compared(const Tensor& got, const Tensor& sent, const std::string& way) {
  if (torch::equal(got, sent)) return "";
  return str((got != sent).sum().item<std::int64_t>(), " of ", sent.numel(),
             " words sent ", way, " arrived damaged");
}

torch::Device gpu_at(int index) {
  if (!torch::cuda::is_available() || index >= torch::cuda::device_count()) {
    throw Error(Fault::hardware, "measure: there is no GPU ", index,
                " for this program; `lockstep doctor` says why");
  }
  return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
}

}  // namespace

std::string check_transfer(const torch::Device& from, const torch::Device& to,
                           const Damage& damage) {
  std::int64_t seed = 0;
  for (const std::int64_t words : {1, 511, 65'536, 8 << 20}) {
    for (const auto& [a, b] : {std::pair(from, to), std::pair(to, from)}) {
      const auto sent = pattern(words, ++seed);
      const auto there = torch::zeros({words}, torch::dtype(torch::kInt64).device(b));
      there.copy_(sent.to(a));
      finish(b);
      const auto got = there.to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
      if (damage) damage(got);
      auto problem = compared(got, sent, str("from ", a.str(), " to ", b.str()));
      if (!problem.empty()) return problem;
    }
  }
  return "";
}

hardware::MeasuredPair measure_pair(int first, int second, const Effort& effort) {
  const auto from = gpu_at(first);
  const auto to = gpu_at(second);
  hardware::MeasuredPair measured{.first = first, .second = second, .problem = ""};
  measured.problem = check_transfer(from, to);
  if (!measured.problem.empty()) return measured;
  const auto bytes = std::min<std::int64_t>(effort.copied_bytes, 256 << 20);
  const auto sent = torch::ones({bytes}, torch::dtype(torch::kUInt8).device(from));
  const auto got = torch::empty({bytes}, torch::dtype(torch::kUInt8).device(to));
  const auto copy = [&] { got.copy_(sent, /*non_blocking=*/true); };
  finish(from);
  const auto once = seconds_of(
      [&] {
        copy();
        finish(from);  // whichever of the two has the stream of the copy
      },
      to, effort.seconds);
  measured.copy = static_cast<double>(bytes) / once;
  return measured;
}

}  // namespace lockstep::probe
