#include "lockstep/models/add_relu.h"

#include "lockstep/kernels/add_relu.h"
#include "tests/support/support.h"

namespace lockstep::models {
namespace {

using torch::Tensor;

// Sums of both signs, zeros and what is not a number.
std::pair<Tensor, Tensor> summands(at::IntArrayRef shape,
                                   const torch::TensorOptions& options) {
  torch::manual_seed(3);
  auto a = torch::randn(shape).to(options), b = torch::randn(shape).to(options);
  a.view(-1)[0] = std::nan("");
  b.view(-1)[1] = -a.view(-1)[1];
  a.view(-1)[2] = -INFINITY;
  return {a, b};
}

// Bits, so that a NaN equals itself.
bool same_bits(const Tensor& x, const Tensor& y) {
  return x.strides() == y.strides() && torch::equal(x.isnan(), y.isnan()) &&
         torch::equal(x.nan_to_num(7), y.nan_to_num(7));
}

void expect_as_by_operators(Tensor a, Tensor b) {
  a = a.detach().requires_grad_(true);
  b = b.detach().requires_grad_(true);
  const auto wanted = (a + b).relu();
  const auto weights = torch::randn_like(wanted);
  const auto wanted_gradients = torch::autograd::grad({wanted}, {a, b}, {weights});
  const auto got = add_relu(a, b);
  const auto gradients = torch::autograd::grad({got}, {a, b}, {weights});
  EXPECT_TRUE(same_bits(got, wanted));
  for (const std::size_t i : {0, 1}) {
    EXPECT_TRUE(same_bits(gradients[i], wanted_gradients[i])) << i;
  }
}

TEST(AddRelu, HasTheBitsOfTwoOperators) {
  const auto [a, b] = summands({4, 3, 5, 7}, torch::kFloat);
  EXPECT_FALSE(kernels::fits_add_relu(a, b)) << "a CPU has no kernel of its own";
  expect_as_by_operators(a, b);
}

TEST(AddRelu, HasTheBitsOfTwoOperatorsOnAGpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const auto type :
       {torch::kFloat, torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    const auto options = torch::device(torch::kCUDA).dtype(type);
    // One that is full of groups of 16 bytes, ones that are not, and a large one.
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{
             {2, 8, 4, 4}, {3}, {4, 3, 5, 7}, {64, 33, 57, 31}}) {
      const auto [a, b] = summands(shape, options);
      EXPECT_TRUE(kernels::fits_add_relu(a, b));
      expect_as_by_operators(a, b);
    }
    const auto [a, b] = summands({4, 3, 5, 7}, options);
    const auto last = torch::MemoryFormat::ChannelsLast;
    expect_as_by_operators(a.contiguous(last), b.contiguous(last));
    // Another layout on one side, and memory that begins within a group.
    EXPECT_FALSE(kernels::fits_add_relu(a.contiguous(last), b));
    expect_as_by_operators(a.contiguous(last), b);
    const auto flat = a.view(-1), other = b.view(-1);
    expect_as_by_operators(flat.narrow(0, 1, 300), other.narrow(0, 1, 300));
  }
}

}  // namespace
}  // namespace lockstep::models
