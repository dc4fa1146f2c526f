#include "lockstep/kernels/gemm.h"

#include <torch/torch.h>

#include "lockstep/kernels/runner.h"
#include "tests/support/support.h"

namespace lockstep::kernels {
namespace {

using torch::Tensor;

struct GemmCase {
  torch::Device device = torch::kCPU;
  bool a_transposed = false, b_transposed = false, adds = false;
  Epilogue epilogue = Epilogue::none;
};

// Sizes are multiples of 16, which every epilogue takes.
constexpr std::int64_t kM = 48, kN = 64, kK = 80;

Tensor operand(std::int64_t rows, std::int64_t columns, bool transposed) {
  return transposed ? torch::randn({columns, rows}) : torch::randn({rows, columns});
}

void expect_product(const GemmCase& one, Gemms* gemms) {
  const auto on = [&](const Tensor& x) { return x.to(one.device).contiguous(); };
  const auto a = on(operand(kM, kK, one.a_transposed));
  const auto b = on(operand(kK, kN, one.b_transposed));
  const auto added = on(torch::randn({kM, kN}));
  const bool sums_rows = one.epilogue == Epilogue::row_sums;
  const auto vector = on(torch::randn({sums_rows ? kM : kN}));
  const auto aux = on(torch::randn({kM, kN})), out = torch::full_like(aux, NAN);
  const auto wide = [](const Tensor& x) { return x.to(torch::kCPU, torch::kFloat64); };
  const auto left = one.a_transposed ? wide(a).t() : wide(a);
  auto wanted = left.mm(one.b_transposed ? wide(b).t() : wide(b));
  Tensor wanted_vector, wanted_aux;
  if (one.epilogue == Epilogue::bias) wanted = wanted + wide(vector);
  if (one.epilogue == Epilogue::gelu) {
    wanted_aux = wanted + wide(vector);
    wanted = torch::gelu(wanted_aux, "tanh");
  }
  if (one.epilogue == Epilogue::gelu_backward) {
    wanted = at::gelu_backward(wanted, wide(aux), "tanh");
    wanted_vector = wanted.sum(0);
  }
  if (sums_rows) wanted_vector = left.sum(1);
  if (one.adds) wanted = wanted + wide(added);
  const bool has_aux =
      one.epilogue == Epilogue::gelu || one.epilogue == Epilogue::gelu_backward;
  Runner(one.device)(Gemm{.shape = {.m = kM,
                                    .n = kN,
                                    .k = kK,
                                    .a_transposed = one.a_transposed,
                                    .b_transposed = one.b_transposed,
                                    .epilogue = one.epilogue,
                                    .adds = one.adds},
                          .out = out.mutable_data_ptr(),
                          .a = a.const_data_ptr(),
                          .b = b.const_data_ptr(),
                          .added = added.const_data_ptr(),
                          .vector = vector.mutable_data_ptr(),
                          .aux = has_aux ? aux.mutable_data_ptr() : nullptr},
                     gemms);
  const auto near = [&](const Tensor& is, const Tensor& should) {
    // Sums of 80 products in float.
    return wide(is).allclose(should, 1e-4, 1e-4);
  };
  EXPECT_TRUE(near(out, wanted));
  EXPECT_TRUE(!wanted_vector.defined() || near(vector, wanted_vector));
  EXPECT_TRUE(!wanted_aux.defined() || near(aux, wanted_aux));
}

void expect_all_products(const torch::Device& device, Gemms* gemms) {
  torch::manual_seed(2);
  for (const bool adds : {false, true}) {
    expect_product({device, false, true, adds, Epilogue::bias}, gemms);
    expect_product({device, false, false, adds, Epilogue::none}, gemms);
    expect_product({device, true, false, adds, Epilogue::none}, gemms);
    expect_product({device, true, true, adds, Epilogue::none}, gemms);
  }
  expect_product({device, false, true, false, Epilogue::gelu}, gemms);
}

}  // namespace

TEST(Gemm, OnTheHostHasEveryEpilogue) {
  expect_all_products(torch::kCPU, nullptr);
  expect_product({torch::kCPU, false, false, false, Epilogue::gelu_backward}, nullptr);
  expect_product({torch::kCPU, true, false, false, Epilogue::row_sums}, nullptr);
}

TEST(Gemm, OnAGpuIsTheSame) {
  if (!torch::cuda::is_available() || !gemms_available()) {
    GTEST_SKIP() << "no GPU, or no cuBLASLt";
  }
  const torch::Device device(torch::kCUDA, 0);
  const auto workspace = torch::empty({1 << 22}, torch::device(device));
  Gemms gemms(workspace.mutable_data_ptr(), workspace.nbytes());
  expect_all_products(device, &gemms);
}

TEST(Gemm, AChoiceTunedOnAGpuIsKeptAsText) {
  if (!torch::cuda::is_available() || !gemms_available()) {
    GTEST_SKIP() << "no GPU, or no cuBLASLt";
  }
  const torch::Device device(torch::kCUDA, 0);
  const auto workspace = torch::empty({1 << 22}, torch::device(device));
  const auto x = torch::randn({128, 128}, torch::device(device));
  const auto out = torch::empty_like(x);
  Gemm gemm{.shape = {.m = 128, .n = 128, .k = 128},
            .out = out.mutable_data_ptr(),
            .a = x.const_data_ptr(),
            .b = x.const_data_ptr()};
  Gemms first(workspace.mutable_data_ptr(), workspace.nbytes());
  const auto tuned = first.tune(gemm, current_stream(0));
  EXPECT_GT(tuned.tried, 0);
  EXPECT_TRUE(first.is_tuned(gemm.shape));
  Gemms second(workspace.mutable_data_ptr(), workspace.nbytes());
  second.use_choices(first.choices());
  EXPECT_TRUE(second.is_tuned(gemm.shape));
  Gemms third(workspace.mutable_data_ptr(), workspace.nbytes());
  third.use_choices("of_another_GPU_" + first.choices());
  EXPECT_FALSE(third.is_tuned(gemm.shape));
  // Of two for a shape, which another process may have added, the first is meant.
  auto other = first.choices();
  auto& digit = other[other.size() - 2];  // of the algorithm
  digit = digit == '0' ? '1' : '0';
  third.use_choices(first.choices() + other);
  EXPECT_EQ(third.choices(), first.choices());
  third.use_choices(other);
  EXPECT_EQ(third.choices(), other) << "a later text replaces what was known";
  gemm.shape.adds = true;
  EXPECT_FALSE(second.is_tuned(gemm.shape));
}

}  // namespace lockstep::kernels
