#include <thread>

#include "lockstep/probe/all_reduce.h"
#include "lockstep/probe/rates.h"
#include "lockstep/probe/transfer.h"
#include "lockstep/probe/verify.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using probe::Effort;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

probe::VerifyOptions small() {
  return {.memory_bytes = 3 << 20, .rows = 64};
}

#define SKIP_WITHOUT_GPU() \
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU"

TEST(Probe, TheHostHasRates) {
  const auto measured = probe::measure_host(Effort::quick());
  EXPECT_GT(measured.host_copy.value(), 1e8);  // 100 MB/s: any machine
  EXPECT_GT(measured.cpu_flops.value(), 1e8);
}

TEST(Probe, AGpuThatIsNotThereIsRefused) {
  EXPECT_THAT(test::error_text(Fault::hardware,
                               [] { probe::measure_gpu(999, Effort::quick()); }),
              HasSubstr("there is no GPU 999"));
  EXPECT_THAT(test::error_text(Fault::hardware,
                               [] { probe::measure_pair(999, 0, Effort::quick()); }),
              HasSubstr("there is no GPU 999"));
}

TEST(Probe, ATransferThatArrivesHasNoProblem) {
  EXPECT_EQ(probe::check_transfer(torch::kCPU, torch::kCPU), "");
}

TEST(Probe, OneBitThatChangesOnTheWayIsFound) {
  const auto flip = [](const torch::Tensor& t) {
    if (t.numel() > 511) t[511].bitwise_xor_(1 << 5);
  };
  EXPECT_EQ(probe::check_transfer(torch::kCPU, torch::kCPU, flip),
            "1 of 65536 words sent from cpu to cpu arrived damaged");
}

TEST(Probe, ADeviceThatComputesRightPasses) {
  const auto steps = probe::verify(torch::kCPU, small());
  EXPECT_EQ(steps.size(), 5U);
  EXPECT_THAT(steps, Each(Field(&hardware::GpuCheckStep::problem, IsEmpty())));
}

TEST(Probe, OneWrongValueFailsEveryStep) {
  auto options = small();
  options.damage = [](const torch::Tensor& t) { t.view({-1})[5].add_(1); };
  const auto steps = probe::verify(torch::kCPU, options);
  EXPECT_EQ(steps.at(0).problem, "1 of 4096 values are wrong");
  EXPECT_EQ(steps.at(1).problem, "1 of 4096 values are wrong");
  EXPECT_THAT(steps.at(2).problem, HasSubstr("1 of 393216 words from byte 0 on"));
  EXPECT_THAT(steps.at(3).problem, HasSubstr("other bits"));
  EXPECT_THAT(steps.at(4).problem, HasSubstr("other bits"));
}

TEST(Probe, AStepThatThrowsHasFailedAndTheOthersGoOn) {
  auto options = small();
  options.damage = [](const torch::Tensor& t) {
    if (t.scalar_type() == torch::kInt64) throw Error(Fault::hardware, "it is gone");
  };
  const auto steps = probe::verify(torch::kCPU, options);
  EXPECT_EQ(steps.at(2).problem, "it is gone");
  EXPECT_EQ(steps.at(4).problem, "");
}

TEST(Probe, AllReduceIsCheckedAndTimedOnAllRanks) {
  auto worlds = comm::join_threads({torch::kCPU, torch::kCPU, torch::kCPU}, {});
  std::vector<std::string> problems(3, "not run");
  std::vector<std::vector<hardware::MeasuredCollective>> measured(3);
  std::vector<std::jthread> ranks;
  for (std::size_t r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r] {
      problems[r] = probe::check_all_reduce(worlds[r]);
      measured[r] =
          probe::measure_all_reduce(worlds[r], {4096, 1 << 20}, Effort::quick());
    });
  }
  ranks.clear();
  EXPECT_THAT(problems, Each(IsEmpty()));
  for (const auto& own : measured) {
    ASSERT_EQ(own.size(), 2U);
    EXPECT_EQ(own[1].ranks, 3);
    EXPECT_EQ(own[1].bytes, 1 << 20);
    EXPECT_EQ(own[1].backend, "local");
    EXPECT_GT(own[1].seconds, 0);
    EXPECT_EQ(own[1].seconds, measured[0][1].seconds);
  }
}

TEST(ProbeGpu, HasRates) {
  SKIP_WITHOUT_GPU();
  const auto measured = probe::measure_gpu(0, Effort::quick());
  EXPECT_GT(measured.copy.value(), 1e10);
  EXPECT_GT(measured.from_host.value(), 1e8);
  EXPECT_GT(measured.to_host.value(), 1e8);
  EXPECT_GT(measured.bf16_flops.value(), measured.fp32_flops.value());
}

TEST(ProbeGpu, PassesItsTest) {
  SKIP_WITHOUT_GPU();
  const auto steps = probe::verify(torch::Device(torch::kCUDA, 0),
                                   {.memory_bytes = 1LL << 30, .rows = 1024});
  EXPECT_THAT(steps, Each(Field(&hardware::GpuCheckStep::problem, IsEmpty())));
}

TEST(ProbeGpu, SendsToItselfAndToTheHost) {
  SKIP_WITHOUT_GPU();
  const torch::Device gpu(torch::kCUDA, 0);
  EXPECT_EQ(probe::check_transfer(gpu, torch::kCPU), "");
  const auto pair = probe::measure_pair(0, 0, Effort::quick());
  EXPECT_EQ(pair.problem, "");
  EXPECT_GT(pair.copy.value(), 1e9);
}

}  // namespace
}  // namespace lockstep
