// What is read through NVML, from a library of our own that says what it is told to.
#include "lockstep/hardware/gpu_meter.h"
#include "lockstep/hardware/gpu_use.h"
#include "lockstep/hardware/machine.h"
#include "tests/hardware/fake_machine.h"

namespace lockstep {
namespace {

using hardware::detect;
using hardware::inspect;
using test::fake_gpu;
using test::fake_gpus;
using test::fake_uuid;
using test::FakeMachine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Nvml, DetectTellsWhatAPlanNeeds) {
  const FakeMachine machine(fake_gpus(2));
  const auto found = detect(machine.root());
  ASSERT_EQ(found.gpus.size(), 2U);
  EXPECT_EQ(found.gpus[0].index, 0);
  EXPECT_EQ(found.gpus[0].name, "Example H200");
  EXPECT_EQ(found.gpus[0].uuid, fake_uuid(0));
  EXPECT_EQ(found.gpus[0].memory_total_bytes, 80'000'000'000);
  EXPECT_EQ(found.gpus[0].compute_major, 9);
  EXPECT_EQ(found.gpus[0].pci_id, "0000:0b:00.0");
  EXPECT_EQ(found.gpus[1].index, 1);
  EXPECT_EQ(found.gpus[1].nvml_index, 1);
  EXPECT_EQ(found.driver_version, "580.82.07");
  EXPECT_EQ(found.cuda_driver_version, "13.0");
  EXPECT_EQ(found.gpu_note, "");
  EXPECT_EQ(found.gpus[0].power_limit_watts, std::nullopt);  // that is inspect()'s
}

TEST(Nvml, SaysHowBusyGpusAreOverTime) {
  auto state = fake_gpus(2);
  state["gpus"][0]["utilization"] = {75, 0};
  state["gpus"][1]["utilization"] = {25, 0};
  const FakeMachine machine(state);
  const auto begin = Clock::system().now();
  const hardware::GpuUse use(machine.root(), std::chrono::milliseconds(1));
  const std::vector<std::string> both{fake_uuid(0), fake_uuid(1)};
  const auto seen = [&](const std::vector<std::string>& uuids) {
    return use.mean(uuids, begin, Clock::system().now());
  };
  EXPECT_TRUE(test::eventually([&] { return seen(both).has_value(); }));
  EXPECT_DOUBLE_EQ(seen({both[0]}).value(), 0.75);
  EXPECT_DOUBLE_EQ(seen(both).value(), 0.5);
  EXPECT_FALSE(seen({"GPU-nobody"}));
  EXPECT_FALSE(
      use.mean(both, begin - std::chrono::hours(2), begin - std::chrono::hours(1)));
  const hardware::GpuUse none("/nothing/is/here");
  EXPECT_FALSE(none.mean(both, begin, Clock::system().now()));
}

TEST(Nvml, EveryNumberOfGpusIsDetected) {
  for (const int count : {1, 2, 4, 8}) {
    const FakeMachine machine(fake_gpus(count));
    const auto found = inspect("/", machine.root());
    EXPECT_EQ(found.gpus.size(), static_cast<std::size_t>(count));
    EXPECT_EQ(found.gpu_pairs.size(),
              static_cast<std::size_t>(count * (count - 1) / 2));
  }
}

TEST(Nvml, ADriverWithoutAGpuIsANote) {
  const FakeMachine machine(fake_gpus(0));
  for (const auto& found : {detect(machine.root()), inspect("/", machine.root())}) {
    EXPECT_THAT(found.gpus, IsEmpty());
    EXPECT_EQ(found.gpu_note, "the NVIDIA driver shows no GPU");
    EXPECT_EQ(found.driver_version, "580.82.07");
  }
}

TEST(Nvml, InspectTellsAllThatTheDriverKnows) {
  auto state = fake_gpus(1);
  state["gpus"][0]["throttle"] = 0x4 | 0x20;
  state["gpus"][0]["utilization"] = {93, 41};
  state["gpus"][0]["memory"]["used"] = 20'000'000'000;
  state["gpus"][0]["remapped"] = {2, 1, 1, 0};
  const FakeMachine machine(state);
  const auto gpu = inspect("/", machine.root()).gpus.at(0);
  EXPECT_EQ(gpu.multiprocessors, 132);
  EXPECT_EQ(gpu.max_threads_per_block, 1024);
  EXPECT_EQ(gpu.max_threads_per_multiprocessor, 2048);
  EXPECT_EQ(gpu.shared_memory_per_block_bytes, 232448);
  EXPECT_EQ(gpu.shared_memory_per_multiprocessor_bytes, 233472);
  EXPECT_EQ(gpu.l2_bytes, 50 << 20);
  EXPECT_EQ(gpu.memory_bus_bits, 5120);
  EXPECT_EQ(gpu.max_sm_clock_mhz, 1980);
  EXPECT_EQ(gpu.max_memory_clock_mhz, 3201);
  EXPECT_EQ(gpu.power_limit_watts, 700);
  EXPECT_EQ(gpu.slowdown_celsius, 87);
  EXPECT_EQ(gpu.pcie_generation, 4);
  EXPECT_EQ(gpu.pcie_width, 16);
  EXPECT_EQ(gpu.max_pcie_generation, 5);
  EXPECT_EQ(gpu.persistence, true);
  EXPECT_EQ(gpu.compute_mode, "shared");
  EXPECT_EQ(gpu.ecc_enabled, true);
  ASSERT_TRUE(gpu.remapped_rows);
  EXPECT_EQ(gpu.remapped_rows->corrected, 2);
  EXPECT_EQ(gpu.remapped_rows->uncorrected, 1);
  EXPECT_TRUE(gpu.remapped_rows->pending);
  EXPECT_FALSE(gpu.remapped_rows->failed);

  EXPECT_EQ(gpu.status.memory_used_bytes, 20'000'000'000);
  EXPECT_EQ(gpu.status.memory_reserved_bytes, 500'000'000);
  EXPECT_EQ(gpu.status.memory_free_bytes, 59'500'000'000);
  EXPECT_EQ(gpu.status.utilization_percent, 93);
  EXPECT_EQ(gpu.status.memory_utilization_percent, 41);
  EXPECT_EQ(gpu.status.temperature_celsius, 35);
  EXPECT_EQ(gpu.status.power_watts, 75.5);
  EXPECT_EQ(gpu.status.energy_joules, 123'456);
  EXPECT_EQ(gpu.status.sm_clock_mhz, 1980);
  EXPECT_EQ(gpu.status.memory_clock_mhz, 3201);
  ASSERT_TRUE(gpu.status.throttle_reasons);
  EXPECT_THAT(*gpu.status.throttle_reasons, ElementsAre("power_cap", "temperature"));
  EXPECT_EQ(gpu.status.ecc_corrected, 3);
  EXPECT_EQ(gpu.status.ecc_uncorrected, 0);
  EXPECT_EQ(gpu.status.pcie_replays, 2);
}

// As /dev/kmsg has it. What a program did to itself says nothing about its GPU.
TEST(Nvml, ErrorsOfAGpuComeFromTheKernelsLog) {
  const FakeMachine machine(fake_gpus(2));
  machine.file("dev/kmsg",
               "6,1,5,-;usb 1-1: new device\n"
               "3,2,6,-;NVRM: Xid (PCI:0000:0b:00): 31, pid=12, Ch 1, MMU Fault\n"
               "3,3,7,-;NVRM: Xid (PCI:0000:1B:00): 79, pid=12, GPU has fallen off\n"
               "3,4,8,-;NVRM: Xid (PCI:0000:99:00): 79, another GPU\n"
               "3,5,9,-;NVRM: Xid (PCI:0000:1b:00): what, ever\n"
               "3,6,9,-;NVRM: Xid (PCI:0000:1b:00");
  const auto gpus = inspect("/", machine.root()).gpus;
  EXPECT_TRUE(gpus.at(0).xid_errors.empty());
  ASSERT_EQ(gpus.at(1).xid_errors.size(), 1U);
  EXPECT_EQ(gpus.at(1).xid_errors[0].xid, 79);
  EXPECT_EQ(gpus.at(1).xid_errors[0].message, "79, pid=12, GPU has fallen off");
}

TEST(Nvml, WhatTheDeviceDoesNotTellIsNotAvailable) {
  auto state = fake_gpus(1);
  auto& gpu = state["gpus"][0];
  for (const auto* key : {"power_mw", "ecc", "remapped", "clocks", "attributes",
                          "persistence", "compute_mode", "throttle", "slowdown"}) {
    gpu.erase(key);
  }
  gpu["errors"] = {{"nvmlDeviceGetTemperature", 4}};  // no permission
  const FakeMachine machine(state);
  const auto found = inspect("/", machine.root()).gpus.at(0);
  EXPECT_EQ(found.status.power_watts, std::nullopt);
  EXPECT_EQ(found.status.temperature_celsius, std::nullopt);
  EXPECT_EQ(found.status.ecc_corrected, std::nullopt);
  EXPECT_EQ(found.status.throttle_reasons, std::nullopt);
  EXPECT_EQ(found.remapped_rows, std::nullopt);
  EXPECT_EQ(found.ecc_enabled, std::nullopt);
  EXPECT_EQ(found.multiprocessors, std::nullopt);
  EXPECT_EQ(found.compute_mode, std::nullopt);
  EXPECT_EQ(found.status.utilization_percent, 0);  // and the rest is there
}

TEST(Nvml, AnOldDriverTellsWhatItHas) {
  const FakeMachine machine(fake_gpus(2), FAKE_NVML_OLD);
  std::filesystem::remove(machine.root() / "usr/lib/libcuda.so.1");
  const auto found = inspect("/", machine.root());
  ASSERT_EQ(found.gpus.size(), 2U);
  const auto& gpu = found.gpus[0];
  EXPECT_EQ(gpu.name, "Example H200");
  EXPECT_EQ(gpu.pci_id, "");
  EXPECT_EQ(gpu.status.memory_free_bytes, 79'500'000'000);
  EXPECT_EQ(gpu.status.memory_reserved_bytes, std::nullopt);
  EXPECT_EQ(gpu.status.power_watts, 75.5);
  EXPECT_EQ(gpu.power_limit_watts, std::nullopt);
  EXPECT_EQ(gpu.max_pcie_generation, std::nullopt);
  EXPECT_THAT(gpu.processes, IsEmpty());
  EXPECT_EQ(found.gpu_pairs.at(0).path, std::nullopt);
}

TEST(Nvml, ALostGpuIsNamedAndTheOthersStay) {
  auto state = fake_gpus(4);
  state["gpus"][1]["errors"] = {{"nvmlDeviceGetHandleByIndex_v2", 15}};
  state["gpus"][2]["errors"] = {{"nvmlDeviceGetMemoryInfo", 15}};
  state["cuda_order"] = {fake_uuid(0), fake_uuid(3)};
  const FakeMachine machine(state);
  for (const auto& found : {detect(machine.root()), inspect("/", machine.root())}) {
    ASSERT_EQ(found.gpus.size(), 2U);
    EXPECT_EQ(found.gpus[1].uuid, fake_uuid(3));
    EXPECT_EQ(found.gpus[1].index, 1);
    EXPECT_EQ(found.gpus[1].nvml_index, 3);
    ASSERT_EQ(found.unusable_gpus.size(), 2U);
    EXPECT_EQ(found.unusable_gpus[0].nvml_index, 1);
    EXPECT_EQ(found.unusable_gpus[0].reason, "GPU is lost");
    EXPECT_EQ(found.unusable_gpus[1].nvml_index, 2);
    EXPECT_EQ(found.hidden_gpus, 0);
  }
}

TEST(Nvml, ThoseThatCudaHidesAreCounted) {
  auto state = fake_gpus(4);
  state["cuda_order"] = {fake_uuid(2)};
  const FakeMachine machine(state);
  machine.environment({"CUDA_VISIBLE_DEVICES=2"});
  for (const auto& found : {detect(machine.root()), inspect("/", machine.root())}) {
    EXPECT_EQ(found.gpus.size(), 1U);
    EXPECT_EQ(found.hidden_gpus, 3);
  }
}

TEST(Nvml, WithoutPermissionThereIsANote) {
  auto state = fake_gpus(2);
  for (auto& gpu : state["gpus"]) gpu["errors"] = {{"*", 4}};
  state.erase("cuda_order");
  const FakeMachine machine(state);
  for (const auto& found : {detect(machine.root()), inspect("/", machine.root())}) {
    EXPECT_THAT(found.gpus, IsEmpty());
    EXPECT_EQ(found.gpu_note,
              "GPU 0 cannot be used: Insufficient Permissions, nor can the others");
  }
}

TEST(Nvml, ADriverThatDoesNotStartIsANote) {
  auto state = fake_gpus(1);
  state["init"] = 9;
  const FakeMachine machine(state);
  const auto found = detect(machine.root());
  EXPECT_THAT(found.gpus, IsEmpty());
  EXPECT_EQ(found.gpu_note, "NVML does not start: Driver Not Loaded");
}

TEST(Nvml, ALibraryWithoutTheFunctionsIsANote) {
  const files::TemporaryDirectory directory;
  const auto root = directory.path();
  std::filesystem::create_directories(root / "usr/lib");
  std::filesystem::copy_file(FAKE_CUDA, root / "usr/lib/libnvidia-ml.so.1");
  const auto found = detect(root);
  EXPECT_THAT(found.gpus, IsEmpty());
  EXPECT_THAT(found.gpu_note, HasSubstr("lacks a function"));
}

TEST(Nvml, ProcessesHaveNamesAndOwners) {
  auto state = fake_gpus(1);
  state["gpus"][0]["processes"] = {{{"pid", 4242}, {"memory", 3'000'000'000}},
                                   {{"pid", 77}}};  // of another container
  const FakeMachine machine(state);
  machine.file("proc/4242/comm", "python3\n");
  machine.file("proc/4242/status", "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n");
  machine.file("etc/passwd", "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n");
  const auto processes = inspect("/", machine.root()).gpus.at(0).processes;
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_EQ(processes[0].pid, 77);
  EXPECT_EQ(processes[0].name, "");
  EXPECT_EQ(processes[0].memory_bytes, std::nullopt);
  EXPECT_EQ(processes[1].name, "python3");
  EXPECT_EQ(processes[1].user, "alice");
  EXPECT_EQ(processes[1].memory_bytes, 3'000'000'000);
}

TEST(Nvml, AThousandProcessesAreNotTooMany) {
  auto state = fake_gpus(1);
  for (int pid = 1; pid <= 1000; ++pid) {
    state["gpus"][0]["processes"].push_back({{"pid", pid}});
  }
  const FakeMachine machine(state);
  EXPECT_EQ(inspect("/", machine.root()).gpus.at(0).processes.size(), 1000U);
}

TEST(Nvml, LinksAreCountedBetweenPairs) {
  auto state = fake_gpus(3);
  state["gpus"][0]["nvlinks"] = {test::fake_pci(1), nullptr, test::fake_pci(1)};
  state["gpus"][1]["nvlinks"] = {test::fake_pci(0), test::fake_pci(0)};
  state["topology"] = {{0, 10, 50}, {10, 0, 30}, {50, 30, 0}};
  state["peer_status"] = 0;
  const FakeMachine machine(state);
  const auto found = inspect("/", machine.root());
  ASSERT_EQ(found.gpu_pairs.size(), 3U);
  EXPECT_EQ(found.gpu_pairs[0].nvlinks, 2);
  EXPECT_EQ(found.gpu_pairs[0].path, "switch");
  EXPECT_EQ(found.gpu_pairs[0].peer_access, true);
  EXPECT_EQ(found.gpu_pairs[1].first, 0);
  EXPECT_EQ(found.gpu_pairs[1].second, 2);
  EXPECT_EQ(found.gpu_pairs[1].nvlinks, 0);
  EXPECT_EQ(found.gpu_pairs[1].path, "system");
  EXPECT_EQ(found.gpu_pairs[2].path, "bridge");
  ASSERT_EQ(found.gpus[0].nvlinks.size(), 2U);
  EXPECT_EQ(found.gpus[0].nvlinks[1].link, 2);
  EXPECT_EQ(found.gpus[0].nvlinks[1].remote_pci_id, "0000:1b:00.0");
  EXPECT_EQ(found.gpus[0].nvlinks[1].version, 4);
}

TEST(Nvml, LinksToSwitchesJoinAllThatHaveThem) {
  auto state = fake_gpus(3);
  const auto through = "switch:00000000:C0:00.0";
  state["gpus"][0]["nvlinks"] = {through, through, through};
  state["gpus"][1]["nvlinks"] = {through, through};
  state["gpus"][0]["nvlink_kib"] = {10, 20};
  state["peer_status"] = 3;
  const FakeMachine machine(state);
  const auto found = inspect("/", machine.root());
  EXPECT_EQ(found.gpu_pairs[0].nvlinks, 2);
  EXPECT_EQ(found.gpu_pairs[1].nvlinks, 0);
  EXPECT_EQ(found.gpu_pairs[0].peer_access, false);
  EXPECT_EQ(found.gpus[0].status.nvlink_sent_bytes, 10 << 10);
  EXPECT_EQ(found.gpus[0].status.nvlink_received_bytes, 20 << 10);
  EXPECT_EQ(found.gpus[1].status.nvlink_sent_bytes, std::nullopt);
}

TEST(Nvml, AGpuIsOnASideOfTheMachine) {
  const FakeMachine machine(fake_gpus(2));
  machine.file("sys/bus/pci/devices/0000:0b:00.0/numa_node", "1\n");
  machine.file("sys/bus/pci/devices/0000:0b:00.0/local_cpulist", "8-15\n");
  machine.file("sys/bus/pci/devices/0000:1b:00.0/numa_node", "-1\n");
  const auto found = inspect("/", machine.root());
  EXPECT_EQ(found.gpus[0].numa_node, 1);
  EXPECT_EQ(found.gpus[0].cpus_near, "8-15");
  EXPECT_EQ(found.gpus[1].numa_node, std::nullopt);
}

TEST(GpuMeter, ReadsAnewEachTime) {
  auto state = fake_gpus(2);
  const FakeMachine machine(state);
  const hardware::GpuMeter meter(machine.root());
  ASSERT_EQ(meter.gpus().size(), 2U);
  EXPECT_EQ(meter.gpus()[1].slowdown_celsius, 87);
  EXPECT_EQ(meter.read().at(1).utilization_percent, 0);
  state["gpus"][1]["utilization"] = {77, 5};
  machine.set(state);
  EXPECT_EQ(meter.read().at(1).utilization_percent, 77);
}

TEST(GpuMeter, AGpuThatFallsOffTheBusHasNoNumbers) {
  auto state = fake_gpus(2);
  const FakeMachine machine(state);
  const hardware::GpuMeter meter(machine.root());
  state["gpus"][0]["errors"] = {{"*", 15}};
  machine.set(state);
  const auto statuses = meter.read();
  EXPECT_EQ(statuses.at(0).utilization_percent, std::nullopt);
  EXPECT_EQ(statuses.at(0).memory_used_bytes, std::nullopt);
  EXPECT_EQ(statuses.at(1).utilization_percent, 0);
}

TEST(GpuMeter, ReadsOnlyThoseThatAreAskedFor) {
  const FakeMachine machine(fake_gpus(4));
  const hardware::GpuMeter meter(machine.root(), std::vector<int>{3, 1, 7});
  ASSERT_EQ(meter.gpus().size(), 2U);
  EXPECT_EQ(meter.gpus()[0].index, 1);
  EXPECT_EQ(meter.gpus()[1].uuid, fake_uuid(3));
  EXPECT_EQ(meter.read().size(), 2U);
  EXPECT_EQ(hardware::GpuMeter(machine.root(), std::vector<int>{}).gpus().size(), 0U);
}

TEST(GpuMeter, OfAMachineWithoutADriverIsEmpty) {
  const files::TemporaryDirectory nothing;
  const hardware::GpuMeter meter(nothing.path());
  EXPECT_THAT(meter.gpus(), IsEmpty());
  EXPECT_THAT(meter.read(), IsEmpty());
}

}  // namespace
}  // namespace lockstep
