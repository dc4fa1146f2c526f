#include "lockstep/memory/out_of_memory.h"

#include "lockstep/memory/memory_meter.h"
#include "lockstep/models/dropout.h"
#include "tests/support/support.h"

namespace lockstep::memory {
namespace {

TEST(OutOfMemory, ALimitOfTheHostRefusesWhatDoesNotFitAndNothingElse) {
  torch::Tensor outlives;
  {
    const HostMemoryLimit limit(1 << 20);
    auto half = torch::zeros({1 << 17});
    EXPECT_GE(limit.used_bytes(), 1 << 19);
    try {
      torch::zeros({1 << 18});
      FAIL() << "it fits";
    } catch (const std::exception& error) {
      EXPECT_TRUE(is_out_of_memory(error)) << error.what();
      EXPECT_THAT(error.what(), testing::HasSubstr("memory.host_limit 1048576"));
    }
    half.reset();
    EXPECT_EQ(limit.used_bytes(), 0);
    outlives = torch::ones({1 << 17});
  }
  EXPECT_EQ(outlives.sum().item<double>(), 1 << 17);
  EXPECT_NO_THROW(torch::zeros({1 << 20})) << "the limit is gone";
}

TEST(MemoryMeter, CountsTheHostWithAndWithoutALimitAndWhatHasNoMemory) {
  const auto expect_counts = [](MemoryMeter& meter, const torch::Device& device) {
    const auto before = meter.used_bytes();
    auto one = torch::zeros({1 << 16}, device);
    EXPECT_GE(meter.used_bytes() - before, 1 << 18) << device;
    torch::zeros({1 << 16}, device).reset();
    EXPECT_GE(meter.peak_bytes() - before, 1 << 19) << device;
    meter.restart_peak();
    EXPECT_LT(meter.peak_bytes() - before, 1 << 19) << device;
    one.reset();
    EXPECT_EQ(meter.used_bytes(), before) << device;
  };
  for (const auto type : {torch::kCPU, torch::kMeta}) {
    MemoryMeter meter(type);
    expect_counts(meter, type);
    EXPECT_GT(meter.available_bytes(), std::int64_t{1} << 60);
  }
  HostMemoryLimit limit(1 << 20);
  MemoryMeter meter(torch::kCPU, &limit);
  expect_counts(meter, torch::kCPU);
  EXPECT_EQ(meter.available_bytes(), 1 << 20);
}

TEST(OutOfMemory, OtherErrorsAreNotTakenForIt) {
  EXPECT_FALSE(is_out_of_memory(std::runtime_error("shape [3] does not fit [4]")));
  EXPECT_TRUE(is_out_of_memory(std::bad_alloc()));
  try {
    torch::empty({std::int64_t{1} << 55});  // more than any machine has
    FAIL() << "it was allocated";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_out_of_memory(error)) << error.what();
  }
}

TEST(OutOfMemory, AStepsStartBringsBackBuffersAndDraws) {
  for (const bool by_sample : {false, true}) {
    const auto model =
        models::build({.name = "resnet9", .dropout = 0.5}, {{1, 8, 8}, 3});
    std::shared_ptr<models::SamplePass> pass;
    if (by_sample) (pass = models::draw_by_sample(*model, 3))->begin(0, 0, 4);
    StepStart start(*model, torch::kCPU);
    const auto x = torch::randn({4, 1, 8, 8});
    start.take();
    const auto first = model->forward(x);
    const auto statistics = model->buffers()[0].clone();
    start.restore();
    if (by_sample) pass->begin(0, 0, 4);
    EXPECT_FALSE(torch::equal(model->buffers()[0], statistics));
    const auto second = model->forward(x);
    EXPECT_TRUE(torch::equal(first, second)) << "dropout drew something else";
    EXPECT_TRUE(torch::equal(model->buffers()[0], statistics));
  }
}

}  // namespace
}  // namespace lockstep::memory
