// Which GPUs CUDA shows, and in which order.
#include "lockstep/hardware/machine.h"
#include "tests/hardware/fake_machine.h"

namespace lockstep {
namespace {

using test::Json;
using ::testing::ElementsAre;

std::vector<std::string> uuids(const hardware::Machine& machine) {
  std::vector<std::string> result;
  for (const auto& gpu : machine.gpus) result.push_back(gpu.uuid);
  return result;
}

// Like GPUs without libcuda: the rules of CUDA_VISIBLE_DEVICES are ours to apply.
class VisibleDevices : public ::testing::Test {
 protected:
  hardware::Machine with(const std::string& value) const {
    machine_.environment({"HOME=/", "CUDA_VISIBLE_DEVICES=" + value});
    return hardware::detect(machine_.root());
  }
  const test::FakeMachine machine_{test::fake_gpus(3)};
};

TEST_F(VisibleDevices, ChooseAndReorder) {
  EXPECT_THAT(uuids(with("1")), ElementsAre(test::fake_uuid(1)));
  EXPECT_THAT(uuids(with("2, 0")), ElementsAre(test::fake_uuid(2), test::fake_uuid(0)));
  EXPECT_THAT(uuids(with("GPU-1111")), ElementsAre(test::fake_uuid(1)));
  EXPECT_THAT(uuids(with(test::fake_uuid(2))), ElementsAre(test::fake_uuid(2)));
  EXPECT_EQ(with("2").gpus[0].index, 0);
  EXPECT_EQ(with("2").gpus[0].nvml_index, 2);
}

TEST_F(VisibleDevices, TheListEndsAtTheFirstUnknownDevice) {
  EXPECT_THAT(uuids(with("0,7,1")), ElementsAre(test::fake_uuid(0)));
}

TEST_F(VisibleDevices, HiddenGpusAreNotedAsHidden) {
  for (const std::string value : {"", "-1", "none"}) {
    const auto found = with(value);
    EXPECT_TRUE(found.gpus.empty()) << value;
    EXPECT_THAT(found.gpu_note, ::testing::HasSubstr("CUDA_VISIBLE_DEVICES='" + value +
                                                     "' hides all of them (3"));
    EXPECT_EQ(found.driver_version, "580.82.07");
  }
}

Json unlike_gpus() {
  auto state = test::fake_gpus(3);
  state["gpus"][0]["name"] = "Example T4";
  state["gpus"][0]["attributes"]["16"] = 40;
  // CUDA puts the fastest first.
  state["cuda_order"] = {test::fake_uuid(1), test::fake_uuid(2), test::fake_uuid(0)};
  return state;
}

TEST(CudaOrder, UnlikeGpusAreCountedAsCudaCounts) {
  const test::FakeMachine machine(unlike_gpus());
  for (const auto& found :
       {hardware::detect(machine.root()), hardware::inspect("/", machine.root())}) {
    EXPECT_THAT(uuids(found), ElementsAre(test::fake_uuid(1), test::fake_uuid(2),
                                          test::fake_uuid(0)));
    EXPECT_EQ(found.gpus[2].index, 2);
    EXPECT_EQ(found.gpus[2].nvml_index, 0);
    EXPECT_EQ(found.gpus[2].name, "Example T4");
  }
  EXPECT_EQ(hardware::inspect("/", machine.root()).gpus[2].multiprocessors, 40);
}

TEST(CudaOrder, DetectDoesNotAskLibcudaWhenTheOrderIsKnown) {
  auto state = test::fake_gpus(2);
  state["cuda_order"] = {test::fake_uuid(1)};  // would show if it were asked
  const test::FakeMachine like(state);
  EXPECT_EQ(hardware::detect(like.root()).gpus.size(), 2U);

  const test::FakeMachine by_bus(unlike_gpus());
  by_bus.environment({"CUDA_DEVICE_ORDER=PCI_BUS_ID"});
  EXPECT_EQ(hardware::detect(by_bus.root()).gpus[0].name, "Example T4");
}

TEST(CudaOrder, WithoutLibcudaTheDriversOrderStands) {
  const test::FakeMachine machine(unlike_gpus());
  std::filesystem::remove(machine.root() / "usr/lib/libcuda.so.1");
  EXPECT_EQ(hardware::inspect("/", machine.root()).gpus[0].name, "Example T4");
}

TEST(CudaOrder, ALibcudaThatDoesNotStartIsAsIfItWereNotThere) {
  auto state = unlike_gpus();
  state.erase("cuda_order");
  const test::FakeMachine machine(state);
  EXPECT_EQ(hardware::detect(machine.root()).gpus.size(), 3U);
}

// The second of two GPUs is cut into instances, numbered with a gap.
Json mig_gpus() {
  auto state = test::fake_gpus(2, "Example A100");
  const auto instance = [](char digit, long long bytes) {
    return Json{{"name", "Example A100 MIG 3g.40gb"},
                {"uuid", str("MIG-", std::string(8, digit), "-1111-2222-3333-",
                             std::string(12, digit))},
                {"memory", {{"total", bytes}}},
                {"attributes", {{"16", 42}}}};
  };
  state["gpus"][1]["mig"] = {
      {"mode", 1},
      {"devices",
       {instance('a', 40'000'000'000), nullptr, instance('b', 20'000'000'000)}}};
  state.erase("cuda_order");
  return state;
}

TEST(Mig, AnInstanceIsADeviceOfItsOwn) {
  const test::FakeMachine machine(mig_gpus());
  machine.environment({"CUDA_VISIBLE_DEVICES=MIG-bbbb"});
  const auto found = hardware::detect(machine.root());
  ASSERT_EQ(found.gpus.size(), 1U);
  EXPECT_EQ(found.gpus[0].name, "Example A100 MIG 3g.40gb");
  EXPECT_EQ(found.gpus[0].memory_total_bytes, 20'000'000'000);
  EXPECT_EQ(found.gpus[0].mig_parent, test::fake_uuid(1));
  EXPECT_EQ(found.gpus[0].nvml_index, 1);
  EXPECT_EQ(found.gpus[0].compute_major, 9);
  EXPECT_EQ(found.gpus[0].pci_id, "0000:1b:00.0");
}

TEST(Mig, ANumberMeansTheFirstInstance) {
  const test::FakeMachine machine(mig_gpus());
  machine.environment({"CUDA_VISIBLE_DEVICES=1"});
  const auto found = hardware::detect(machine.root());
  ASSERT_EQ(found.gpus.size(), 1U);
  EXPECT_EQ(found.gpus[0].memory_total_bytes, 40'000'000'000);
  machine.environment({"CUDA_VISIBLE_DEVICES=0"});
  EXPECT_EQ(hardware::detect(machine.root()).gpus.at(0).mig_parent, "");
}

TEST(Mig, AProcessHasOneInstanceAndNothingElse) {
  const test::FakeMachine machine(mig_gpus());
  machine.environment({"CUDA_VISIBLE_DEVICES=MIG-aaaa,MIG-bbbb"});
  EXPECT_EQ(hardware::detect(machine.root()).gpus.size(), 1U);
}

TEST(Mig, LibcudaDecidesWhereItIsThere) {
  auto state = mig_gpus();
  state["cuda_order"] = {"MIG-bbbbbbbb-1111-2222-3333-bbbbbbbbbbbb"};
  const test::FakeMachine machine(state);
  const auto found = hardware::inspect("/", machine.root());
  ASSERT_EQ(found.gpus.size(), 1U);
  EXPECT_EQ(found.gpus[0].memory_total_bytes, 20'000'000'000);
  EXPECT_EQ(found.gpus[0].multiprocessors, 42);
}

TEST(Mig, AGpuWithoutInstancesIsOfNoUse) {
  auto state = mig_gpus();
  state["gpus"].erase(0);
  state["gpus"][0]["mig"]["devices"] = Json::array();
  const test::FakeMachine machine(state);
  const auto found = hardware::detect(machine.root());
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_EQ(found.gpu_note, "they are in MIG mode and have no instance");
}

}  // namespace
}  // namespace lockstep
