#include "lockstep/hardware/choose_gpus.h"

#include "tests/support/support.h"

namespace lockstep {
namespace {

using hardware::choose_gpus;
using hardware::Gpu;
using hardware::Machine;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t kGb = 1'000'000'000;

Machine machine_of(std::vector<std::int64_t> free_gb) {
  Machine machine;
  for (std::size_t i = 0; i < free_gb.size(); ++i) {
    Gpu gpu;
    gpu.index = gpu.nvml_index = static_cast<int>(i);
    gpu.name = "Example L4";
    gpu.uuid = "GPU-" + std::to_string(i);
    gpu.memory_total_bytes = 24 * kGb;
    gpu.status.memory_free_bytes = free_gb[i] * kGb;
    gpu.status.memory_used_bytes = (24 - free_gb[i]) * kGb;
    gpu.status.utilization_percent = 0;
    machine.gpus.push_back(gpu);
  }
  return machine;
}

TEST(ChooseGpus, MostFreeMemoryComesFirst) {
  const auto machine = machine_of({4, 24, 12});
  EXPECT_THAT(choose_gpus(machine, {}).chosen, ElementsAre(1, 2, 0));
  EXPECT_THAT(choose_gpus(machine, {.count = 1}).chosen, ElementsAre(1));
}

TEST(ChooseGpus, ThoseWithTooLittleMemoryAreRejectedWithTheArithmetic) {
  const auto choice = choose_gpus(machine_of({4, 24}), {.min_memory_bytes = 20 * kGb});
  EXPECT_THAT(choice.chosen, ElementsAre(1));
  ASSERT_EQ(choice.rejected.size(), 1U);
  EXPECT_EQ(choice.rejected[0].index, 0);
  EXPECT_EQ(choice.rejected[0].reason, "3.7 GiB free < 18.6 GiB");
}

TEST(ChooseGpus, BetweenEqualsTheLessBusyOneWins) {
  auto machine = machine_of({24, 24, 24});
  machine.gpus[0].status.utilization_percent = 95;
  machine.gpus[1].status.utilization_percent = 40;
  EXPECT_THAT(choose_gpus(machine, {}).chosen, ElementsAre(2, 1, 0));
}

TEST(ChooseGpus, SmallDifferencesOfMemoryDoNotDecide) {
  auto machine = machine_of({23, 23});
  *machine.gpus[0].status.memory_free_bytes -= 100'000'000;
  machine.gpus[1].status.utilization_percent = 50;
  EXPECT_THAT(choose_gpus(machine, {.count = 1}).chosen, ElementsAre(0));
}

TEST(ChooseGpus, BetweenEqualsThoseWithTheBestLinksWin) {
  auto machine = machine_of({24, 24, 24, 24});
  const auto link = [&](int a, int b, int nvlinks, const char* path) {
    machine.gpu_pairs.push_back(
        {.first = a, .second = b, .nvlinks = nvlinks, .path = path});
  };
  link(0, 1, 0, "system");
  link(0, 2, 0, "bridge");
  link(0, 3, 0, "system");
  link(1, 2, 0, "system");
  link(1, 3, 4, "system");
  link(2, 3, 0, "node");
  EXPECT_THAT(choose_gpus(machine, {.count = 2}).chosen, UnorderedElementsAre(1, 3));
  machine.gpu_pairs[4].nvlinks = 0;
  EXPECT_THAT(choose_gpus(machine, {.count = 2}).chosen, UnorderedElementsAre(0, 2));
  // More memory comes before better links.
  machine.gpus[1].status.memory_free_bytes = 25 * kGb;
  EXPECT_THAT(choose_gpus(machine, {.count = 2}).chosen, ::testing::Contains(1));
}

TEST(ChooseGpus, FreeMeansThatNobodyComputesThere) {
  auto machine = machine_of({24, 24, 20, 24});
  machine.gpus[0].processes.push_back({.pid = 42, .name = "python3", .user = "alice"});
  machine.gpus[3].status.utilization_percent = 80;
  const auto choice = choose_gpus(machine, {.only_free = true});
  EXPECT_THAT(choice.chosen, ElementsAre(1));
  ASSERT_EQ(choice.rejected.size(), 3U);
  EXPECT_EQ(choice.rejected[0].reason, "1 process on it (python3 42 of alice)");
  EXPECT_EQ(choice.rejected[1].reason, "3.7 GiB in use");
  EXPECT_EQ(choice.rejected[2].reason, "80 % busy");
  EXPECT_EQ(choose_gpus(machine, {}).chosen.size(), 4U);
}

TEST(ChooseGpus, AProhibitedOneIsNotChosen) {
  auto machine = machine_of({24, 24});
  machine.gpus[0].compute_mode = "prohibited";
  EXPECT_THAT(choose_gpus(machine, {}).chosen, ElementsAre(1));
}

TEST(ChooseGpus, OfNoneIsNone) {
  EXPECT_THAT(choose_gpus(Machine{}, {.count = 4}).chosen, IsEmpty());
  EXPECT_THAT(choose_gpus(machine_of({24}), {.count = 0}).chosen, IsEmpty());
}

TEST(ChooseGpus, SixtyFourEqualsTakeNoTime) {
  const auto machine = machine_of(std::vector<std::int64_t>(64, 24));
  EXPECT_EQ(choose_gpus(machine, {.count = 32}).chosen.size(), 32U);
}

TEST(VisibleDevicesValue, IsNumbersForLikeGpusAndUuidsElse) {
  auto machine = machine_of({24, 24, 24});
  EXPECT_EQ(visible_devices(machine, {2, 0}), "0,2");
  EXPECT_EQ(visible_devices(machine, {2, 0}, true), "GPU-0,GPU-2");
  machine.gpus[1].name = "Example T4";
  EXPECT_EQ(visible_devices(machine, {0}), "GPU-0");
  EXPECT_EQ(visible_devices(machine, {}), "");
}

// CUDA does not count one that is lost, and may put a hidden one anywhere.
TEST(VisibleDevicesValue, IsUuidsWhereCudaCouldCountOtherwise) {
  auto machine = machine_of({24, 24, 24});
  machine.unusable_gpus = {{.nvml_index = 3, .reason = "GPU is lost"}};
  EXPECT_EQ(visible_devices(machine, {2}), "GPU-2");
  machine.unusable_gpus.clear();
  machine.hidden_gpus = 1;
  EXPECT_EQ(visible_devices(machine, {2}), "GPU-2");
  machine.hidden_gpus = 0;
  std::swap(machine.gpus[0].nvml_index, machine.gpus[1].nvml_index);
  EXPECT_EQ(visible_devices(machine, {2}), "GPU-2");
  machine.gpus[2].uuid = "";  // of a file by hand
  EXPECT_EQ(visible_devices(machine, {2}), "2");
}

}  // namespace
}  // namespace lockstep
