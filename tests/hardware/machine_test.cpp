#include "lockstep/hardware/machine.h"

#include "tests/support/support.h"

namespace lockstep {
namespace {

hardware::Machine machine(const std::string& name) {
  return hardware::detect(test::fixture("hardware/fixtures/" + name));
}

TEST(Machine, APlainLaptop) {
  const auto found = machine("two_cores");
  EXPECT_EQ(found.hostname, "laptop");
  EXPECT_EQ(found.os, "Debian GNU/Linux 12 (bookworm)");
  EXPECT_EQ(found.kernel, "6.1.0-18-amd64");
  EXPECT_EQ(found.cpu_model, "Example CPU 2000");
  EXPECT_EQ(found.physical_cores, 2);
  EXPECT_EQ(found.logical_cores, 2);
  EXPECT_EQ(found.sockets, 1);
  EXPECT_EQ(found.memory_total_bytes, 8LL << 30);
  EXPECT_EQ(found.memory_available_bytes, 6LL << 30);
}

TEST(Machine, WithoutNvmlThereIsNoGpuAndANoteSaysWhy) {
  const auto found = machine("two_cores");
  EXPECT_TRUE(found.gpus.empty());
  EXPECT_EQ(found.driver_version, "");
  EXPECT_THAT(found.gpu_note, ::testing::HasSubstr("libnvidia-ml.so.1"));
}

TEST(Machine, HyperThreadsShareACore) {
  const auto found = machine("two_sockets");
  EXPECT_EQ(found.sockets, 2);
  EXPECT_EQ(found.physical_cores, 64);
  EXPECT_EQ(found.logical_cores, 128);
}

TEST(Machine, AffinityLimitsTheCores) {
  const files::TemporaryDirectory directory;
  const auto root = directory.path() / "root";
  std::filesystem::copy(test::fixture("hardware/fixtures/two_sockets"), root,
                        std::filesystem::copy_options::recursive);
  // Two cores of socket 0 with both threads, one thread of one core of socket 1.
  test::write_file(root / "proc/self/status", "Cpus_allowed_list:\t0-1,64-65,40\n");
  const auto found = hardware::detect(root);
  EXPECT_EQ(found.physical_cores, 3);
  EXPECT_EQ(found.logical_cores, 5);
  EXPECT_EQ(found.sockets, 2);
}

TEST(Machine, TheTightestLimitOfTheCgroupsCounts) {
  const auto found = machine("cgroup_v2");
  EXPECT_EQ(found.logical_cores, 3);  // 3.5 cores by the parent's quota
  EXPECT_EQ(found.physical_cores, 3);
  EXPECT_EQ(found.memory_total_bytes, 4LL << 30);
  // 4 GiB - 3 GiB in use + 1 GiB of file cache
  EXPECT_EQ(found.memory_available_bytes, 2LL << 30);
}

TEST(Machine, VersionOneCgroupsCountToo) {
  const auto found = machine("cgroup_v1");
  EXPECT_EQ(found.logical_cores, 1);  // half a core is still one thread
  EXPECT_EQ(found.memory_total_bytes, 2LL << 30);
  EXPECT_EQ(found.memory_available_bytes, 1LL << 30);
}

TEST(Machine, ProcessorsWithoutCoreIdsAreCores) {
  const auto found = machine("arm");
  EXPECT_EQ(found.physical_cores, 4);
  EXPECT_EQ(found.logical_cores, 4);
  EXPECT_EQ(found.cpu_model, "");
}

TEST(Machine, AnEmptyRootGivesDefaultsNotAnError) {
  const files::TemporaryDirectory directory;
  const auto found = hardware::detect(directory.path());
  EXPECT_EQ(found.physical_cores, 1);
  EXPECT_EQ(found.logical_cores, 1);
  EXPECT_EQ(found.memory_total_bytes, 0);
}

TEST(Machine, GarbageGivesDefaultsNotAnError) {
  const files::TemporaryDirectory directory;
  const auto root = directory.path();
  test::write_file(root / "proc/cpuinfo", ":::\nprocessor : x\ncore id : 1\n");
  test::write_file(root / "proc/self/status",
                   "Cpus_allowed_list: 9-1,-,x,0-99999999\n");
  test::write_file(root / "proc/self/cgroup", "0\n::\n1:cpu\n");
  test::write_file(root / "proc/meminfo", "MemTotal: lots\n");
  std::filesystem::create_directories(root / "etc/os-release");
  const auto found = hardware::detect(root);
  EXPECT_EQ(found.logical_cores, 1);
  EXPECT_EQ(found.memory_total_bytes, 0);
}

TEST(Machine, OmpNumThreadsIsANumberAboveZeroOrNothing) {
  const files::TemporaryDirectory directory;
  const auto threads_with = [&](const std::string& value) {
    test::write_file(directory.path() / "proc/self/environ",
                     std::string("HOME=/\0", 7) + "OMP_NUM_THREADS=" + value + '\0');
    return hardware::detect(directory.path()).omp_num_threads;
  };
  EXPECT_EQ(hardware::detect(directory.path()).omp_num_threads, std::nullopt);
  EXPECT_EQ(threads_with("1"), 1);
  EXPECT_EQ(threads_with(" 12,2 "), 12);
  for (const auto* value : {"", "0", "-3", "many", "2.5", "99999999999", ","}) {
    EXPECT_EQ(threads_with(value), std::nullopt) << value;
  }
}

TEST(Machine, ThisMachineHasCoresAndMemory) {
  const auto found = hardware::detect();
  EXPECT_GE(found.logical_cores, found.physical_cores);
  EXPECT_GE(found.physical_cores, 1);
  EXPECT_GT(found.memory_total_bytes, 0);
  EXPECT_GE(found.memory_total_bytes, found.memory_available_bytes);
  EXPECT_NE(found.hostname, "");
  EXPECT_EQ(found.gpus.empty(), !found.gpu_note.empty());
}

}  // namespace
}  // namespace lockstep
