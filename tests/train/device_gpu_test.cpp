#include <filesystem>

#include <ATen/Context.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "lockstep/memory/out_of_memory.h"
#include "lockstep/train/device.h"
#include "tests/support/support.h"

namespace lockstep::train {
namespace {

TEST(DeviceGpu, AFractionOfTheMemoryIsAllThatAProcessGets) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  const torch::Device gpu(torch::kCUDA, 0);
  const auto small = torch::zeros({1 << 20}, gpu);  // it may be in use already
  memory::limit_device_memory(gpu, 0.05);
  const auto total = at::getDeviceAllocator(torch::kCUDA)->getMemoryInfo(0).second;
  try {
    torch::empty({static_cast<std::int64_t>(total / 10)},
                 torch::dtype(torch::kUInt8).device(gpu));
    FAIL() << "a tenth of the memory was given";
  } catch (const std::exception& error) {
    EXPECT_TRUE(memory::is_out_of_memory(error)) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::train
