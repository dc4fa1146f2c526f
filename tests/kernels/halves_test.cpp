#include "lockstep/kernels/detail/halves.h"

#include <cmath>

#include <torch/torch.h>

#include "tests/support/support.h"

namespace lockstep::kernels::detail {
namespace {

// All numbers of 16 bits, read as `dtype`.
torch::Tensor all_halves(torch::Dtype dtype) {
  return torch::arange(1 << 16, torch::kInt32).to(torch::kInt16).view(dtype);
}

template <typename Half>
void expect_widens_as_torch(torch::Dtype dtype) {
  const auto want = all_halves(dtype).to(torch::kFloat32);
  const auto* numbers = want.const_data_ptr<float>();
  for (int bits = 0; bits < 1 << 16; ++bits) {
    const float got = widened(Half{static_cast<std::uint16_t>(bits)});
    if (std::isnan(numbers[bits])) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(__builtin_bit_cast(std::uint32_t, got),
                __builtin_bit_cast(std::uint32_t, numbers[bits]))
          << bits;
    }
  }
}

// Numbers of 16 bits, what lies in the middle between neighbours, and the floats beside
// these; small ones, overflows and numbers of all sizes.
torch::Tensor floats_to_round(torch::Dtype dtype) {
  const auto halves = all_halves(dtype).to(torch::kFloat32);
  const auto numbers = halves.masked_select(halves.isfinite());
  const auto sorted = std::get<0>(numbers.sort());
  const auto middle =
      ((sorted.slice(0, 1).to(torch::kFloat64) + sorted.slice(0, 0, -1)) / 2)
          .to(torch::kFloat32);
  const auto inf = torch::full({}, INFINITY);
  torch::manual_seed(1);
  const auto sizes = torch::randn({100'000}) * torch::logspace(-45, 38, 100'000);
  return torch::cat({sorted, middle, middle.nextafter(inf), middle.nextafter(-inf),
                     sizes,
                     torch::tensor({65519.F, 65520.F, 65535.F, 3.4e38F, -65520.F,
                                    -65519.99F, INFINITY, -INFINITY, 0.F, -0.F})});
}

template <typename Half>
void expect_rounds_as_torch(torch::Dtype dtype) {
  const auto floats = floats_to_round(dtype);
  const auto want = floats.to(dtype).view(torch::kInt16);
  const auto* number = floats.const_data_ptr<float>();
  const auto* bits = want.const_data_ptr<std::int16_t>();
  for (std::int64_t i = 0; i < floats.numel(); ++i) {
    ASSERT_EQ(rounded<Half>(number[i]).bits, static_cast<std::uint16_t>(bits[i]))
        << number[i];
  }
  EXPECT_TRUE(std::isnan(widened(rounded<Half>(std::nanf("")))));
}

TEST(Halves, EveryNumberIsWidenedAsTorchDoes) {
  expect_widens_as_torch<F16>(torch::kFloat16);
  expect_widens_as_torch<Bf16>(torch::kBFloat16);
}

TEST(Halves, TiesSmallNumbersAndOverflowsAreRoundedAsTorchDoes) {
  expect_rounds_as_torch<F16>(torch::kFloat16);
  expect_rounds_as_torch<Bf16>(torch::kBFloat16);
}

}  // namespace
}  // namespace lockstep::kernels::detail
