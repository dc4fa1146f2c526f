#include "lockstep/kernels/normalize.h"

#include <cmath>

#include "tests/support/support.h"

namespace lockstep::kernels {
namespace {

torch::Tensor all_bytes(std::int64_t count) {
  return torch::arange(count).remainder(256).to(torch::kUInt8);
}

TEST(Normalize, RoundsOnceForEveryByte) {
  const auto in = all_bytes(256);
  auto out = torch::empty({256});
  const float scale = 1 / (255 * 0.353F);
  const float shift = -0.286F / 0.353F;
  normalize(out, in, ScaleShift{scale, shift});
  for (int i = 0; i < 256; ++i) {
    EXPECT_EQ(out[i].item<float>(), std::fma(scale, static_cast<float>(i), shift)) << i;
  }
}

TEST(Normalize, EachChannelHasItsOwn) {
  const auto in = all_bytes(2 * 3 * 35).view({2, 3, 5, 7});
  auto out = torch::empty({2, 3, 5, 7});
  const std::vector<ScaleShift> channels{{0.5F, 1}, {0.25F, -2}, {0.01F, 3}};
  normalize(out, in, channels);
  for (std::int64_t c = 0; c < 3; ++c) {
    auto expected = torch::empty({2, 5, 7});
    const auto& own = channels[static_cast<std::size_t>(c)];
    normalize(expected, in.select(1, c).contiguous(), own);
    EXPECT_TRUE(out.select(1, c).equal(expected)) << c;
  }
}

TEST(Normalize, AnEmptyBatchIsFine) {
  auto out = torch::empty({0, 1, 28, 28});
  normalize(out, torch::empty({0, 1, 28, 28}, torch::kUInt8), ScaleShift{});
}

TEST(Normalize, WrongDtypesAreOurBug) {
  auto out = torch::empty({4});
  test::error_text(Fault::internal,
                   [&] { normalize(out, torch::zeros({4}), ScaleShift{}); });
  test::error_text(Fault::internal,
                   [&] { normalize(out, all_bytes(5), ScaleShift{}); });
}

TEST(NormalizeGpu, EqualsTheCpuToTheBit) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const std::int64_t count : {0, 1, 3, 4, 5, 1023, 100'003}) {
    for (const std::int64_t skip : {0, 1, 2}) {  // views that are not aligned
      if (skip > count) continue;
      const auto in = all_bytes(count).narrow(0, skip, count - skip);
      auto expected = torch::empty({count - skip});
      normalize(expected, in, ScaleShift{0.0111F, -0.81F});
      auto room = torch::empty({count}, torch::kCUDA);
      auto out = room.narrow(0, skip, count - skip);
      normalize(out, all_bytes(count).cuda().narrow(0, skip, count - skip),
                ScaleShift{0.0111F, -0.81F});
      EXPECT_TRUE(out.cpu().equal(expected)) << count << " from " << skip;
    }
  }
}

TEST(NormalizeGpu, ChannelsEqualTheCpuToTheBit) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const std::vector<ScaleShift> channels{{0.5F, 1}, {0.25F, -2}, {0.01F, 3}};
  for (const std::int64_t side : {1, 3, 4, 32}) {  // planes of any number of elements
    const auto in = all_bytes(5 * 3 * side * side).view({5, 3, side, side});
    auto expected = torch::empty({5, 3, side, side});
    normalize(expected, in, channels);
    auto out = torch::empty({5, 3, side, side}, torch::kCUDA);
    normalize(out, in.cuda(), channels);
    EXPECT_TRUE(out.cpu().equal(expected)) << side;
  }
}

}  // namespace
}  // namespace lockstep::kernels
