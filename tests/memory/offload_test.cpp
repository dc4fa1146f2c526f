#include "lockstep/memory/offload.h"

#include "tests/support/support.h"

namespace lockstep::memory {
namespace {

using torch::Tensor;

// Three layers; gradients of all of them, and of the input.
std::vector<Tensor> gradients_of(Offload* offload, const torch::Device& device) {
  torch::manual_seed(2);
  torch::nn::Sequential model(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 8, 3).padding(1)),
      torch::nn::BatchNorm2d(8), torch::nn::ReLU(torch::nn::ReLUOptions(true)),
      torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1)),
      torch::nn::Flatten(), torch::nn::Linear(8 * 16 * 16, 10));
  model->to(device);
  const auto x = torch::randn({16, 4, 16, 16}).to(device).requires_grad_(true);
  Tensor loss;
  for (int pass = 0; pass < 3; ++pass) {
    {
      const Offload::Scope scope(offload);
      loss = torch::log_softmax(model->forward(x), 1).square().sum();
    }
    loss.backward();
  }
  std::vector<Tensor> all{loss.detach(), x.grad()};
  for (const auto& parameter : model->parameters()) all.push_back(parameter.grad());
  return all;
}

void expect_same_bits(const torch::Device& device) {
  Offload offload({.device = device, .smallest_bytes = 4096});
  const auto kept = gradients_of(nullptr, device);
  const auto moved = gradients_of(&offload, device);
  EXPECT_GT(offload.moved_bytes(), 3 * 16 * (4 + 8 + 8) * 16 * 16 * 4);
  ASSERT_EQ(kept.size(), moved.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_TRUE(torch::equal(kept[i], moved[i])) << i;
  }
}

TEST(Offload, GradientsHaveTheSameBits) {
  expect_same_bits(torch::kCPU);
}

TEST(Offload, GradientsHaveTheSameBitsOnAGpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  at::globalContext().setDeterministicCuDNN(true);
  expect_same_bits({torch::kCUDA, 0});
}

// Bytes of a GPU that twenty layers and their backward pass take at most, beside what
// they find there.
std::int64_t peak_of(Offload* offload) {
  const auto options = torch::device(torch::kCUDA).dtype(torch::kFloat);
  const auto weight = torch::randn({2048, 2048}, options).requires_grad_(true);
  const auto x = torch::randn({16384, 2048}, options);
  auto* allocator = at::getDeviceAllocator(torch::kCUDA);
  const auto pass = [&] {
    Tensor y = x;
    {
      const Offload::Scope scope(offload);
      for (int layer = 0; layer < 20; ++layer) y = torch::sigmoid(y.mm(weight));
    }
    y.sum().backward();
  };
  pass();
  const auto before = allocator->getDeviceStats(0).allocated_bytes[0].current;
  allocator->resetPeakStats(0);
  for (int i = 0; i < 3; ++i) pass();
  return allocator->getDeviceStats(0).allocated_bytes[0].peak - before;
}

TEST(Offload, AGpuKeepsAFewTensorsOfMany) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  Offload offload({.device = {torch::kCUDA, 0}});
  const auto kept = peak_of(nullptr);
  const auto moved = peak_of(&offload);
  // Twenty outputs against three that leave or come early and what is computed with.
  constexpr std::int64_t kOutput = 16384LL * 2048 * 4;
  EXPECT_GE(kept, 21 * kOutput);
  EXPECT_LE(moved, 11 * kOutput) << "of " << kept;
}

TEST(Offload, WhatIsResidentOrSmallStays) {
  const auto weight = torch::randn({64, 64}).requires_grad_(true);
  Offload offload({.resident = {weight}, .smallest_bytes = 64 * 64 * 4});
  {
    const Offload::Scope scope(&offload);
    weight.mm(weight).sum().backward();
  }
  EXPECT_EQ(offload.moved_bytes(), 0);
  const auto other = torch::randn({64, 64});
  {
    const Offload::Scope scope(&offload);
    // Saved by both products: it goes once.
    (weight.mm(other) + other.mm(weight)).sum().backward();
  }
  EXPECT_EQ(offload.moved_bytes(), 64 * 64 * 4);
}

TEST(Offload, NothingGoesOutsideOfAScopeOrOnAnotherThread) {
  const auto x = torch::randn({1 << 19}).requires_grad_(true);
  Offload offload(Offload::Options{});
  x.square().sum().backward();
  const Offload::Scope scope(&offload);
  std::thread([&] { x.square().sum().backward(); }).join();
  EXPECT_EQ(offload.moved_bytes(), 0);
}

}  // namespace
}  // namespace lockstep::memory
